"""Pack units (sentences, paragraphs, fenced blocks) into chunks without splitting them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import NamedTuple

from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.recursive import RecursiveChunker
from kosmos_rag.ingestion.chunking.span import ChunkSpan, cut_to_size, trim, trim_spans


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkUnit:
    """A trimmed span that stays whole within the limits."""

    start: int
    end: int
    noun: str
    """Its name in messages: `sentence`."""
    body: int
    """Start of its own text, after leading headings; `start` without headings."""
    begins_topic: bool = False
    """Ends a chunk of at least `min_size` before it."""
    begins_paragraph: bool = False
    """Preferred position to divide a full chunk: a paragraph, a row or an item of a list."""
    fenced: bool = False
    """Stays whole up to 1.5 times the size, even if its headings become a chunk of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitRun:
    """Units that may share chunks, in order."""

    units: Sequence[ChunkUnit]
    target: int
    """Characters that a chunk of several units may have."""


_FENCE_ALLOWANCE = 1.5
"""Size limit of a fenced block, as a multiple of `max_size`: half a program is of little use."""


class _CountedUnit(NamedTuple):
    unit: ChunkUnit
    tokens: int
    tokens_before: int
    """Tokens of all units before it."""
    too_long: str | None
    """Reason to cut it; None if it stays whole."""


class Packer:
    """Joins units to chunks of at least `min_size` characters.

    A unit of more than `max_size` characters, or of more tokens than the budget, is cut recursively; with
    `whole_blocks` a fenced one never is.
    """

    def __init__(
        self,
        *,
        chunker: str,
        min_size: int,
        max_size: int,
        budget: TokenBudget,
        recursive: RecursiveChunker,
        whole_blocks: bool = False,
    ) -> None:
        self._chunker = chunker
        self._min_size = min_size
        self._max_size = max_size
        self._budget = budget
        self._recursive = recursive
        self._whole_blocks = whole_blocks

    def pack(self, text: str, runs: Sequence[UnitRun]) -> list[list[ChunkSpan]]:
        """Return the chunk spans of each run, in order.

        All units are counted in one call of the tokenizer.
        """
        counted_units = self._count(text, [unit for run in runs for unit in run.units])
        return [list(self._pack_run(text, list(islice(counted_units, len(run.units))), run.target)) for run in runs]

    def _count(self, text: str, units: Sequence[ChunkUnit]) -> Iterator[_CountedUnit]:
        spans = [(unit.start, unit.end) for unit in units if not self._is_oversize(unit)]
        counts = iter(self._budget.count(text, spans))
        before = 0
        for unit in units:
            tokens = 0 if self._is_oversize(unit) else next(counts)
            yield _CountedUnit(unit, tokens, before, self._too_long(unit, tokens))
            before += tokens

    def _is_oversize(self, unit: ChunkUnit) -> bool:
        if unit.fenced and self._whole_blocks:
            return False
        allowance = _FENCE_ALLOWANCE if unit.fenced else 1
        return unit.end - unit.start > self._max_size * allowance

    def _too_long(self, unit: ChunkUnit, tokens: int) -> str | None:
        if self._is_oversize(unit):
            limit = f"{_FENCE_ALLOWANCE} times max_size" if unit.fenced else "max_size"
            return f"{unit.noun} longer than {limit} ({self._max_size} characters)"
        if tokens > self._budget.max_tokens and not (unit.fenced and self._whole_blocks):
            return f"{unit.noun} over the budget of {self._budget.max_tokens} tokens"
        return None

    def _pack_run(self, text: str, units: Sequence[_CountedUnit], target: int) -> Iterator[ChunkSpan]:
        for reason, stretch in groupby(units, key=lambda counted_unit: counted_unit.too_long):
            if reason is None:
                for group in self._groups(list(stretch), target):
                    span = self._chunk_span(group[0].unit.start, group[-1].unit.end)
                    # Several units always fit; a block that does not is alone.
                    yield replace(span, indivisible=self._whole_blocks and group[0].unit.fenced and len(group) == 1)
            else:
                for counted_unit in stretch:
                    yield from self._cut(text, counted_unit.unit, reason)

    def _groups(self, units: Sequence[_CountedUnit], target: int) -> list[list[_CountedUnit]]:
        groups: list[list[_CountedUnit]] = []
        group: list[_CountedUnit] = []
        for counted_unit in units:
            if group and counted_unit.unit.begins_topic and _extent(group) >= self._min_size:
                groups.append(group)
                group = []
            while group and not self._fits(group[0], counted_unit, target):
                full = self._split_index(group, counted_unit)
                groups.append(group[:full])
                group = group[full:]
            group.append(counted_unit)
        groups.append(group)
        return self._join_short_tail(groups, target)

    def _join_short_tail(self, groups: list[list[_CountedUnit]], target: int) -> list[list[_CountedUnit]]:
        short = len(groups) > 1 and _extent(groups[-1]) < self._min_size
        if short and self._fits(groups[-2][0], groups[-1][-1], target):
            return [*groups[:-2], groups[-2] + groups[-1]]
        return groups

    def _fits(self, first: _CountedUnit, last: _CountedUnit, target: int) -> bool:
        tokens = last.tokens_before + last.tokens - first.tokens_before
        return last.unit.end - first.unit.start <= target and tokens <= self._budget.max_tokens

    def _split_index(self, group: Sequence[_CountedUnit], following: _CountedUnit) -> int:
        if following.unit.begins_paragraph:
            return len(group)
        for index in range(len(group) - 1, 0, -1):
            if group[index].unit.begins_paragraph and _extent(group[:index]) >= self._min_size:
                return index
        return len(group)

    def _cut(self, text: str, unit: ChunkUnit, reason: str) -> Iterator[ChunkSpan]:
        if unit.fenced and unit.start < unit.body and self._fits_alone(text, unit):
            yield self._chunk_span(*trim(text, (unit.start, unit.body)))
            yield self._chunk_span(unit.body, unit.end)
            return
        first, *remaining = self._recursive.cut(text, (unit.body, unit.end), fallback_reason=reason)
        for start, end in trim_spans(text, cut_to_size(text, (unit.start, first.end), self._max_size)):
            yield replace(first, start=start, own_start=start, end=end)
        yield from remaining

    def _fits_alone(self, text: str, unit: ChunkUnit) -> bool:
        alone = replace(unit, start=unit.body)
        if self._is_oversize(alone):
            return False
        (tokens,) = self._budget.count(text, [(alone.start, alone.end)])
        return tokens <= self._budget.max_tokens

    def _chunk_span(self, start: int, end: int) -> ChunkSpan:
        return ChunkSpan(start=start, own_start=start, end=end, chunker=self._chunker)


def _extent(group: Sequence[_CountedUnit]) -> int:
    return group[-1].unit.end - group[0].unit.start
