"""The hard limit of tokens."""

from collections.abc import Sequence

import pytest

from kosmos_rag.core.config import ChunkingSettings
from kosmos_rag.core.errors import ConfigError, ModelError
from kosmos_rag.ingestion.chunking import build_chunker
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.span import ChunkSpan
from kosmos_rag.models.testing.hashing import HashingEmbedder


class BytePieces:
    """Several tokens a character, all with the character's span, and one more where a text begins."""

    def __init__(self, tokens_a_character: int) -> None:
        self.tokens_a_character = tokens_a_character

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text) * self.tokens_a_character + 1 for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [(at, at + 1) for at in range(len(text)) for _ in range(self.tokens_a_character)]


def piece(start: int, end: int, own_start: int | None = None) -> ChunkSpan:
    return ChunkSpan(start=start, end=end, own_start=start if own_start is None else own_start, chunker="recursive")


def test_fit__cuts_again_when_parts_have_more_tokens_than_the_whole_said() -> None:
    text = "abcdefghij" * 30
    fitted = TokenBudget(BytePieces(3), 9).fit(text, [piece(0, len(text))])
    assert all(tokens <= 9 for _, tokens in fitted)
    assert "".join(text[part.start : part.end] for part, _ in fitted) == text


def test_fit__ends_when_the_tokenizer_gives_no_places() -> None:
    class Placeless(BytePieces):
        def offsets(self, text: str) -> list[tuple[int, int]]:
            return [(0, 0)] * len(text)

    text = "abcdefghij" * 10
    fitted = TokenBudget(Placeless(1), 9).fit(text, [piece(0, len(text))])
    assert all(tokens <= 9 for _, tokens in fitted)
    assert "".join(text[part.start : part.end] for part, _ in fitted) == text


def test_fit__drops_an_overlap_before_it_cuts() -> None:
    text = "one two three four five six seven eight nine"
    budget = TokenBudget(HashingEmbedder().tokenizer, 8)
    assert budget.fit(text, [piece(0, 44, own_start=4)]) == [(piece(4, 44), 8)]


def test_fit__cuts_after_white_space_where_it_can() -> None:
    text = "one two three four five six seven eight nine ten"
    fitted = TokenBudget(HashingEmbedder().tokenizer, 8).fit(text, [piece(0, len(text))])
    assert [text[part.start : part.end] for part, _ in fitted] == [
        "one two three four five six seven eight",
        "nine ten",
    ]


def test_fit__when_a_character_is_over_the_budget() -> None:
    with pytest.raises(ModelError, match="more than 8 tokens of one character, 'é'"):
        TokenBudget(BytePieces(8), 8).fit("é", [piece(0, 1)])


def test_build_chunker__when_the_budget_is_too_small() -> None:
    with pytest.raises(ConfigError, match="7 tokens are left for a chunk and 8 are needed"):
        build_chunker(ChunkingSettings(), embedder=HashingEmbedder(), max_tokens=7)
