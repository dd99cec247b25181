"""Select the passages of a context.

Near-duplicates are dropped, neighbours joined, and chunks expanded to their sections.
"""

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kosmos_rag.core.types import Excerpt, Passage

_WORD = re.compile(r"\w+")
_SHINGLE = 3


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return the 3-word shingles of a text, case folded.

    A shorter text is one shingle.
    """
    words = _WORD.findall(text.casefold())
    if len(words) <= _SHINGLE:
        return frozenset([tuple(words)])
    return frozenset(tuple(words[i : i + _SHINGLE]) for i in range(len(words) - _SHINGLE + 1))


def resemblance(first: frozenset[tuple[str, ...]], second: frozenset[tuple[str, ...]]) -> float:
    """Return the Jaccard similarity of two sets of shingles, 0 to 1.

    Source: Broder, "On the resemblance and containment of documents" (1997).
    """
    return len(first & second) / len(first | second)


SpanReader = Callable[[Sequence[tuple[uuid.UUID, int, int]]], list[Excerpt | None]]
"""Reads texts by (version id, start, end); None for a version that was deleted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectedPassage:
    """A passage of the context: one hit, joined neighbours, or a section.

    A section has the hits within it as members.
    """

    members: tuple[Passage, ...]
    """In document order."""
    start: int
    """Offset of the text in its document, in characters."""
    excerpt: Excerpt

    @property
    def best(self) -> Passage:
        """The highest-ranked member."""
        return min(self.members, key=lambda passage: passage.rank)

    @property
    def cited(self) -> tuple[Passage, ...]:
        """The members that the citation covers.

        All neighbours, or the best hit of a section.
        """
        return self.members if self.best.parent_span is None else (self.best,)

    @property
    def quote(self) -> str:
        """The text of the cited span."""
        return self.excerpt.text[self.cited[0].start - self.start : self.cited[-1].end - self.start]

    @property
    def is_one_chunk(self) -> bool:
        """Whether the text is that of a single hit."""
        return len(self.members) == 1 and self.excerpt.text == self.best.text


@dataclass(kw_only=True, slots=True)
class _Group:
    """Hits of one version shown as the text between two offsets."""

    members: list[Passage]
    start: int
    end: int

    @property
    def span(self) -> tuple[uuid.UUID, int, int]:
        return self.members[0].version_id, self.start, self.end

    @property
    def is_one_chunk(self) -> bool:
        (first, *neighbours) = self.members
        return not neighbours and (self.start, self.end) == (first.start, first.end)


def select_single(hit: Passage) -> SelectedPassage:
    """Select a hit with its own text."""
    excerpt = Excerpt(text=hit.text, page_start=hit.page_start, page_end=hit.page_end)
    return SelectedPassage(members=(hit,), start=hit.start, excerpt=excerpt)


def drop_near_duplicates(hits: Sequence[Passage], threshold: float) -> list[Passage]:
    """Drop hits whose similarity to a better hit is at least `threshold`."""
    unique: list[Passage] = []
    unique_shingles: list[frozenset[tuple[str, ...]]] = []
    for hit in hits:
        hit_shingles = shingles(hit.text)
        if all(resemblance(hit_shingles, other) < threshold for other in unique_shingles):
            unique.append(hit)
            unique_shingles.append(hit_shingles)
    return unique


def select(hits: Sequence[Passage], read_spans: SpanReader) -> list[SelectedPassage]:
    """Group hits into passages, ordered by their best member.

    Hits with a parent span are shown as that section, once for all hits in it. Other hits are joined where they are
    adjacent. Joined texts equal the document character by character: what does not follow from the hits is read.
    """
    groups = _group_by_section([hit for hit in hits if hit.parent_span is not None])
    groups += _group_neighbours([hit for hit in hits if hit.parent_span is None])
    joined = [None if group.is_one_chunk else _join(group) for group in groups]
    unread = [excerpt is None and not group.is_one_chunk for group, excerpt in zip(groups, joined, strict=True)]
    spans = [group.span for group, is_unread in zip(groups, unread, strict=True) if is_unread]
    texts = iter(read_spans(spans) if spans else ())
    selections = [
        selection
        for group, excerpt, is_unread in zip(groups, joined, unread, strict=True)
        for selection in _selections(group, next(texts) if is_unread else excerpt)
    ]
    return sorted(selections, key=lambda selection: selection.best.rank)


def _join(group: _Group) -> Excerpt | None:
    """Return the text of neighbours on one page, if theirs determine it.

    Between two of them are line breaks alone where there are as many characters as lines. The text of a section is more
    than that of its hits.
    """
    first, *others = group.members
    text, last = first.text, first
    for hit in others:
        gap = hit.start - last.end
        is_exact = gap == hit.line_start - last.line_end and not text.endswith("\n") and not hit.text.startswith("\n")
        if gap >= 0 and not is_exact:
            return None
        text += "\n" * gap + hit.text if gap >= 0 else hit.text[-gap:]
        last = hit
    if first.parent_span is not None or first.page_start != last.page_end or len(text) != group.end - group.start:
        return None
    return Excerpt(text=text, page_start=first.page_start, page_end=last.page_end)


def _selections(group: _Group, excerpt: Excerpt | None) -> Iterator[SelectedPassage]:
    if excerpt is None:
        yield from (select_single(hit) for hit in group.members)
        return
    members = sorted(group.members, key=lambda passage: passage.chunk_index)
    # A section that was cut at another passage may start with a blank line.
    blank = len(excerpt.text) - len(excerpt.text.lstrip())
    trimmed = replace(excerpt, text=excerpt.text.strip())
    yield SelectedPassage(members=tuple(members), start=group.start + blank, excerpt=trimmed)


def _group_by_section(hits: Sequence[Passage]) -> list[_Group]:
    """Group hits by section, best first.

    A hit within the span of a better one joins its group.
    """
    groups: list[_Group] = []
    for hit in sorted(hits, key=lambda passage: passage.rank):
        same = [group for group in groups if group.members[0].version_id == hit.version_id]
        enclosing = [group for group in same if group.start <= hit.start and hit.end <= group.end]
        if enclosing:
            enclosing[0].members.append(hit)
        else:
            start, end = hit.parent_span or (hit.start, hit.end)
            # Two windows of one long section may overlap: no text is shown twice.
            start = max([start, *(group.end for group in same if group.end <= hit.start)])
            end = min([end, *(group.start for group in same if group.start >= hit.end)])
            groups.append(_Group(members=[hit], start=start, end=end))
    return groups


def _group_neighbours(hits: Sequence[Passage]) -> list[_Group]:
    groups: list[_Group] = []
    for hit in sorted(hits, key=lambda passage: (passage.version_id, passage.chunk_index)):
        last = groups[-1] if groups else None
        if last is not None and _is_next_chunk(last.members[-1], hit):
            last.members.append(hit)
            last.end = max(last.end, hit.end)
        else:
            groups.append(_Group(members=[hit], start=hit.start, end=hit.end))
    return groups


def _is_next_chunk(previous: Passage, candidate: Passage) -> bool:
    """Return whether `candidate` is the next chunk of the same section.

    A citation names one section.
    """
    return (
        previous.version_id == candidate.version_id
        and previous.chunk_index + 1 == candidate.chunk_index
        and previous.section == candidate.section
    )
