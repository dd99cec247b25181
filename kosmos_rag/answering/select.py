"""Which hits the context shows, and as what: duplicates left out, neighbours joined, small pieces in their section."""

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kosmos_rag.core.types import Excerpt, Passage

_WORD = re.compile(r"\w+")
_SHINGLE = 3


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return the text's runs of three words, case folded; a shorter text is one run."""
    words = _WORD.findall(text.casefold())
    if len(words) <= _SHINGLE:
        return frozenset([tuple(words)])
    return frozenset(tuple(words[i : i + _SHINGLE]) for i in range(len(words) - _SHINGLE + 1))


def resemblance(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """Return the share of runs that two texts have in common, 0 to 1.

    Source: Broder, "On the resemblance and containment of documents" (1997).
    """
    return len(one & other) / len(one | other)


SpanReader = Callable[[Sequence[tuple[uuid.UUID, int, int]]], list[Excerpt | None]]
"""Reads texts by (version, start, end); None for a version that is no longer there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """A passage to show: one hit, neighbouring hits as one text, or hits in the text of their section."""

    members: tuple[Passage, ...]
    """In the order of the document."""
    start: int
    """Where the text begins in its document."""
    excerpt: Excerpt

    @property
    def best(self) -> Passage:
        """The member that ranks highest."""
        return min(self.members, key=lambda passage: passage.rank)

    @property
    def cited(self) -> tuple[Passage, ...]:
        """The members whose span the citation has: all neighbours, and of a section the best hit."""
        return self.members if self.best.parent_span is None else (self.best,)

    @property
    def quote(self) -> str:
        """The text of that span."""
        return self.excerpt.text[self.cited[0].start - self.start : self.cited[-1].end - self.start]

    @property
    def is_one_chunk(self) -> bool:
        """Whether nothing but a single hit's own text is shown."""
        return len(self.members) == 1 and self.excerpt.text == self.best.text


@dataclass(kw_only=True, slots=True)
class _Group:
    """Hits of one version that are shown as the text between two offsets."""

    members: list[Passage]
    start: int
    end: int

    @property
    def span(self) -> tuple[uuid.UUID, int, int]:
        return self.members[0].version_id, self.start, self.end

    @property
    def is_one_chunk(self) -> bool:
        (first, *others) = self.members
        return not others and (self.start, self.end) == (first.start, first.end)


def alone(hit: Passage) -> Selection:
    """Show a hit as it is."""
    excerpt = Excerpt(text=hit.text, page_start=hit.page_start, page_end=hit.page_end)
    return Selection(members=(hit,), start=hit.start, excerpt=excerpt)


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


def select(hits: Sequence[Passage], read_spans: SpanReader) -> list[Selection]:
    """Say what is shown of the hits, best first by their best member.

    Hits with a section around them are shown as that, once for all that stand in it; others are joined where they
    follow each other. Such texts are read from the document, so that they are the document's own to the last space.
    """
    groups = _in_sections([hit for hit in hits if hit.parent_span is not None])
    groups += _neighbours([hit for hit in hits if hit.parent_span is None])
    spans = [group.span for group in groups if not group.is_one_chunk]
    excerpts = iter(read_spans(spans) if spans else ())
    selections = [
        selection
        for group in groups
        for selection in _selections(group, None if group.is_one_chunk else next(excerpts))
    ]
    return sorted(selections, key=lambda selection: selection.best.rank)


def _selections(group: _Group, excerpt: Excerpt | None) -> Iterator[Selection]:
    if excerpt is None:
        yield from (alone(hit) for hit in group.members)
        return
    members = sorted(group.members, key=lambda passage: passage.chunk_index)
    # Where a section was cut off at what is shown already, a blank line is left.
    blank = len(excerpt.text) - len(excerpt.text.lstrip())
    trimmed = replace(excerpt, text=excerpt.text.strip())
    yield Selection(members=tuple(members), start=group.start + blank, excerpt=trimmed)


def _in_sections(hits: Sequence[Passage]) -> list[_Group]:
    """Give each hit its section, the best first; one that stands in what a better one shows is a member of that."""
    groups: list[_Group] = []
    for hit in sorted(hits, key=lambda passage: passage.rank):
        same = [group for group in groups if group.members[0].version_id == hit.version_id]
        holding = [group for group in same if group.start <= hit.start and hit.end <= group.end]
        if holding:
            holding[0].members.append(hit)
        else:
            start, end = hit.parent_span or (hit.start, hit.end)
            # Two windows into one long section may overlap: nothing is shown twice.
            start = max([start, *(group.end for group in same if group.end <= hit.start)])
            end = min([end, *(group.start for group in same if group.start >= hit.end)])
            groups.append(_Group(members=[hit], start=start, end=end))
    return groups


def _neighbours(hits: Sequence[Passage]) -> list[_Group]:
    groups: list[_Group] = []
    for hit in sorted(hits, key=lambda passage: (passage.version_id, passage.chunk_index)):
        last = groups[-1] if groups else None
        if last is not None and _follows(last.members[-1], hit):
            last.members.append(hit)
            last.end = max(last.end, hit.end)
        else:
            groups.append(_Group(members=[hit], start=hit.start, end=hit.end))
    return groups


def _follows(one: Passage, other: Passage) -> bool:
    """Whether `other` is the next chunk of the same section: a citation names one section, and must be true."""
    return (
        one.version_id == other.version_id and one.chunk_index + 1 == other.chunk_index and one.section == other.section
    )
