"""Which hits the context shows, and as what: duplicates left out, neighbours of one document joined."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kosmos_rag.context.duplicate import resemblance, shingles
from kosmos_rag.records import Passage

SpanReader = Callable[[Sequence[tuple[uuid.UUID, int, int]]], list[str | None]]
"""Reads texts by (version, start, end); None for a version that is no longer there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """A passage to show: one hit, or neighbouring hits as one text."""

    members: tuple[Passage, ...]
    """In the order of the document."""
    text: str

    @property
    def best(self) -> Passage:
        """The member that ranks highest."""
        return min(self.members, key=lambda passage: passage.rank)


def without_duplicates(hits: Sequence[Passage], threshold: float) -> list[Passage]:
    """Drop each hit that resembles a better one at least as much as `threshold`."""
    kept: list[Passage] = []
    seen: list[frozenset[tuple[str, ...]]] = []
    for hit in hits:
        runs = shingles(hit.text)
        if all(resemblance(runs, other) < threshold for other in seen):
            kept.append(hit)
            seen.append(runs)
    return kept


def joined(hits: Sequence[Passage], read_spans: SpanReader) -> list[Selection]:
    """Join hits that follow each other in a document, best first by their best member.

    The joined text is read from the document, so that it is the document's own to the last space.
    """
    groups = _neighbours(hits)
    spans = [(group[0].version_id, group[0].start, max(p.end for p in group)) for group in groups if len(group) > 1]
    texts = iter(read_spans(spans) if spans else ())
    selections: list[Selection] = []
    for group in groups:
        text = group[0].text if len(group) == 1 else next(texts)
        if text is None:
            selections += [Selection(members=(hit,), text=hit.text) for hit in group]
        else:
            selections.append(Selection(members=tuple(group), text=text))
    return sorted(selections, key=lambda selection: selection.best.rank)


def _neighbours(hits: Sequence[Passage]) -> list[list[Passage]]:
    groups: list[list[Passage]] = []
    for hit in sorted(hits, key=lambda passage: (passage.version_id, passage.ordinal)):
        last = groups[-1][-1] if groups else None
        if last is not None and _follows(last, hit):
            groups[-1].append(hit)
        else:
            groups.append([hit])
    return groups


def _follows(one: Passage, other: Passage) -> bool:
    """Whether `other` is the next chunk of the same section: a citation names one section, and must be true."""
    return one.version_id == other.version_id and one.ordinal + 1 == other.ordinal and one.section == other.section
