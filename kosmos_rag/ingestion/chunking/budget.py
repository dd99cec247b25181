"""The token limit of chunks."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import Tokenizer
from kosmos_rag.ingestion.chunking.span import ChunkSpan, Span, find_cut, trim_spans


class TokenBudget:
    """Counts the tokens of spans, and cuts chunks over the budget."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._tokenizer = tokenizer

    def count(self, text: str, spans: Iterable[Span]) -> list[int]:
        """Count the tokens of each span, in one call of the tokenizer."""
        return self._tokenizer.count([text[start:end] for start, end in spans])

    def fit(self, text: str, chunks: Sequence[ChunkSpan]) -> list[tuple[ChunkSpan, int]]:
        """Return the chunks with their token counts, in order.

        A chunk over the budget loses its overlap, then is cut if it may be. Raises ModelError if the tokenizer makes
        more tokens of a single character than the budget allows.
        """
        fitting: list[tuple[ChunkSpan, int]] = []
        pending = list(chunks)
        # A part may have more tokens than the same span had within the whole, so parts are counted again.
        while pending:
            counts = self.count(text, ((chunk.start, chunk.end) for chunk in pending))
            entry = list(zip(pending, counts, strict=True))
            fitting += [(chunk, tokens) for chunk, tokens in entry if self._is_allowed(chunk, tokens)]
            oversize = [chunk for chunk, tokens in entry if not self._is_allowed(chunk, tokens)]
            pending = [part for chunk in oversize for part in self._shorten(text, chunk)]
        return sorted(fitting, key=lambda entry: entry[0].own_start)

    def _is_allowed(self, chunk: ChunkSpan, tokens: int) -> bool:
        return tokens <= self.max_tokens or (chunk.indivisible and chunk.start == chunk.own_start)

    def _shorten(self, text: str, chunk: ChunkSpan) -> list[ChunkSpan]:
        if chunk.start < chunk.own_start:
            return [replace(chunk, start=chunk.own_start)]
        parts = trim_spans(text, self._cut(text, chunk.start, chunk.end))
        return [replace(chunk, start=start, own_start=start, end=end) for start, end in parts]

    def _cut(self, text: str, start: int, end: int) -> list[Span]:
        if end - start == 1:
            raise ModelError(
                f"the tokenizer makes more than {self.max_tokens} tokens of one character, {text[start]!r}: "
                "use a model that reads more"
            )
        token_starts = [start + first for first, _ in self._tokenizer.offsets(text[start:end])]
        cuts = [start]
        while cuts[-1] < end - 1:
            limit_index = bisect_left(token_starts, cuts[-1]) + self.max_tokens
            if limit_index >= len(token_starts):
                break
            # Several tokens may share one character: at least one character is taken, and one is left.
            limit = min(max(token_starts[limit_index], cuts[-1] + 1), end - 1)
            cuts.append(find_cut(text, cuts[-1], limit))
        if len(cuts) == 1:
            cuts.append(find_cut(text, start, (start + end) // 2))
        return list(zip(cuts, [*cuts[1:], end], strict=True))
