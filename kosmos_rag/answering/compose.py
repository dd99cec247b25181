"""Which units make the answer, and the answer as text: nothing in it that does not stand in the evidence."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from kosmos_rag.answering.evidence import Evidence
from kosmos_rag.records import AnswerSentence, Citation

# A unit that is this much worse than the best one is beside the point.
_SHARE_OF_BEST = 0.75


def select(evidence: Sequence[Evidence], most: int) -> list[Evidence]:
    """Return the best units, `most` at the most: by passage, the best passage first, in the order of each."""
    ranked = sorted(evidence, key=lambda item: -item.score)
    chosen: list[Evidence] = []
    said: set[str] = set()
    for item in ranked:
        words = " ".join(item.unit.text.split())
        if len(chosen) == most or item.score < _SHARE_OF_BEST * ranked[0].score:
            break
        if words not in said:  # chunks overlap, and documents repeat each other
            said.add(words)
            chosen.append(item)
    order = list(dict.fromkeys(item.passage.citation.index for item in chosen))
    return sorted(chosen, key=lambda item: (order.index(item.passage.citation.index), item.unit.start))


def sentence(evidence: Evidence) -> AnswerSentence:
    """Return a unit with the citation of its very span."""
    unit = evidence.unit
    return AnswerSentence(text=unit.text, kind=unit.kind, score=evidence.score, citation=_citation(evidence))


def _citation(evidence: Evidence) -> Citation:
    unit, whole = evidence.unit, evidence.passage.citation
    before = evidence.passage.text.count("\n", 0, unit.start)
    line = whole.line_start + before
    return replace(
        whole,
        start=whole.start + unit.start,
        end=whole.start + unit.end,
        line_start=line,
        line_end=line + unit.text.count("\n"),
        quote_sha256=hashlib.sha256(unit.text.encode()).hexdigest(),
    )


def render(sentences: Sequence[AnswerSentence]) -> str:
    """Return the sentences as Markdown, each with its marker; those of one passage in one paragraph."""
    text = ""
    last: AnswerSentence | None = None
    for said in sentences:
        if last is not None:
            text += _between(last, said)
        # Behind a closing fence a marker would keep the block open.
        text += said.text + ("\n\n" if said.kind == "code" else " ") + said.citation.marker
        last = said
    return text


def _between(last: AnswerSentence, following: AnswerSentence) -> str:
    if last.citation.index != following.citation.index or "code" in (last.kind, following.kind):
        return "\n\n"
    if last.kind == following.kind == "sentence":
        return " "
    return "\n" if last.kind == following.kind else "\n\n"
