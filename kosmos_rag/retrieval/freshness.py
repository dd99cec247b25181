"""Rank documents in force first, and new ones if the question asks.

Passages of documents that are out of date lose half of their score, and come after those of the document that
supersedes theirs. Where a question asks for what is current, and names no year, dated passages gain up to a fifth of
their score: the newest of them all of it, one that is half a year older half of it. `signals` of a passage shows both
changes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date

from kosmos_rag.core.freshness import SUPERSEDED_BY, content_date, outdated_reason
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.fusion import PHRASE

ASKS_CURRENT = re.compile(
    r"""\b(?: currently | latest | newest | recently | most\ recent | up[- ]to[- ]date | nowadays | at\ present
      | as\ of\ (?:now|today) | today's? | still\ (?:valid|in\ force)
      # The adjective, and not an electric current.
      | (?<!electric\ )(?<!alternating\ )(?<!direct\ )(?<!eddy\ )current\b(?=\ \w)
        (?!\ (?:of|in|through|at|is|from|density|flow\w*|sources?|limit\w*)\b)
      | aktuell\w* | neuest\w* | derzeit\w* | heutig\w* )\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Questions for what is current, in English and German."""
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")

_OUTDATED, _RECENCY = "outdated", "recency"
_OUTDATED_LOSS = 0.5
_RECENCY_GAIN = 0.2
_HALF_LIFE_DAYS = 180


def prefer_current(passages: Sequence[Passage], question: str, today: date) -> list[Passage]:
    """Reorder passages so that current documents come first.

    Passages with the quoted phrases of the question stay before the others.

    Args:
        passages: Ranked passages, best first.
        question: The question without operators.
        today: The date that validity is compared with.
    """
    asks = ASKS_CURRENT.search(question) is not None and _YEAR.search(question) is None
    days = {passage.chunk_id: day for passage in passages if (day := content_date(passage.metadata)) is not None}
    # Where all have one date, or a single one has any, dates say nothing about which is current.
    newest = max(days.values()) if asks and len(set(days.values())) > 1 else None
    best: dict[str, float] = {}
    for passage in passages:
        best[passage.source] = max(passage.score, best.get(passage.source, passage.score))
    successors = {passage.source: str(passage.metadata.get(SUPERSEDED_BY) or "") for passage in passages}
    changed = []
    for passage in passages:
        changes = {}
        if outdated_reason(passage.metadata, today) is not None:
            later = (best[source] for source in _chain(passage.source, successors) if source in best)
            loss = max(_OUTDATED_LOSS * abs(passage.score), passage.score - min(later, default=passage.score))
            changes[_OUTDATED] = -loss
        elif newest is not None and passage.chunk_id in days:
            age = (newest - days[passage.chunk_id]).days / _HALF_LIFE_DAYS
            changes[_RECENCY] = _RECENCY_GAIN * 2**-age * abs(passage.score)
        score = passage.score + sum(changes.values())
        changed.append(replace(passage, score=score, signals={**passage.signals, **changes}) if changes else passage)
    # Of equal scores, one of a document in force is first.
    return sorted(
        changed,
        key=lambda passage: (PHRASE not in passage.score_contributions, -passage.score, _OUTDATED in passage.signals),
    )


def _chain(source: str, successors: Mapping[str, str]) -> Iterator[str]:
    """Yield the sources that supersede a source, one after the other."""
    visited = {source}
    while (source := successors.get(source, "")) not in visited | {""}:
        visited.add(source)
        yield source
