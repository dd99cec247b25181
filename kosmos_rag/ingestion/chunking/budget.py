"""The hard limit of tokens, kept for every chunk whichever chunker made it."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import Tokenizer
from kosmos_rag.ingestion.chunking.span import Piece, Span, cut_point, trimmed


class TokenBudget:
    """Counts the tokens of spans, and cuts pieces that have too many."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._tokenizer = tokenizer

    def count(self, text: str, spans: Iterable[Span]) -> list[int]:
        """Count the tokens of each span, in one call of the tokenizer."""
        return self._tokenizer.count([text[start:end] for start, end in spans])

    def fit(self, text: str, pieces: Sequence[Piece]) -> list[tuple[Piece, int]]:
        """Give the pieces with their tokens, in order.

        One over the budget loses its overlap, then is cut if it may be. Raises ModelError if the tokenizer makes more
        tokens of a single character than the budget allows.
        """
        fitting: list[tuple[Piece, int]] = []
        pending = list(pieces)
        # A part may have more tokens than the same span had within the whole, so parts are counted again.
        while pending:
            counts = self.count(text, ((piece.start, piece.end) for piece in pending))
            counted = list(zip(pending, counts, strict=True))
            fitting += [(piece, tokens) for piece, tokens in counted if self._stays(piece, tokens)]
            over = [piece for piece, tokens in counted if not self._stays(piece, tokens)]
            pending = [part for piece in over for part in self._shorten(text, piece)]
        return sorted(fitting, key=lambda counted: counted[0].own)

    def _stays(self, piece: Piece, tokens: int) -> bool:
        return tokens <= self.max_tokens or (piece.whole and piece.start == piece.own)

    def _shorten(self, text: str, piece: Piece) -> list[Piece]:
        if piece.start < piece.own:
            return [replace(piece, start=piece.own)]
        parts = trimmed(text, self._cut(text, piece.start, piece.end))
        return [replace(piece, start=start, own=start, end=end) for start, end in parts]

    def _cut(self, text: str, start: int, end: int) -> list[Span]:
        if end - start == 1:
            raise ModelError(
                f"the tokenizer makes more than {self.max_tokens} tokens of one character, {text[start]!r}: "
                "use a model that reads more"
            )
        token_starts = [start + first for first, _ in self._tokenizer.offsets(text[start:end])]
        cuts = [start]
        while cuts[-1] < end - 1:
            over = bisect_left(token_starts, cuts[-1]) + self.max_tokens
            if over >= len(token_starts):
                break
            # Several tokens may share one character: at least one character is taken, and one is left.
            limit = min(max(token_starts[over], cuts[-1] + 1), end - 1)
            cuts.append(cut_point(text, cuts[-1], limit))
        if len(cuts) == 1:
            cuts.append(cut_point(text, start, (start + end) // 2))
        return list(zip(cuts, [*cuts[1:], end], strict=True))
