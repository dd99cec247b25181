"""What a chunk is found by: title and section before its text, as far as there is room."""

from kosmos_rag.ingestion.document import HEADER_TOKENS, ChunkText, embedding_texts
from kosmos_rag.models.testing.hashing import HashingEmbedder

TOKENIZER = HashingEmbedder().tokenizer


def _piece(text: str, *section: str) -> ChunkText:
    return ChunkText(title="Handbook", source="a/handbook-2.md", section=section, text=text)


def test_header__names_title_and_section_once() -> None:
    texts, truncated = embedding_texts([_piece("Leave is 20 days.", "Leave", "Annual")], TOKENIZER)
    assert texts == ["Handbook | Annual\nLeave is 20 days."]
    assert truncated == 0


def test_header__without_room_is_cut_and_counted_for_each_chunk() -> None:
    section = " ".join(f"word{number}" for number in range(3 * HEADER_TOKENS))
    whole = TOKENIZER.count([f"Handbook | {section}"])[0]
    texts, truncated = embedding_texts([_piece("One.", section), _piece("Two.", section)], TOKENIZER)
    counts = [TOKENIZER.count([text.split("\n")[0]])[0] for text in texts]
    assert counts[0] == counts[1] < HEADER_TOKENS
    assert truncated == 2 * (whole - counts[0])
    assert [text.split("\n")[1] for text in texts] == ["One.", "Two."]


def test_header__has_the_context_of_the_table_unless_the_rows_repeat_it() -> None:
    context = ("Prices of 2024", "Plan | Price")
    rows = ["| Basic | 45 |", "Plan: Basic; Price: 45", "Price: 45"]
    pieces = [ChunkText(title="a", source="a", section=(), text=row, table_context=context) for row in rows]
    headers = [text.split("\n")[0] for text in embedding_texts(pieces, TOKENIZER)[0]]
    assert headers == ["Prices of 2024 | Plan | Price", "Prices of 2024", "Prices of 2024 | Plan | Price"]


def test_analysed_text__has_the_title_twice_and_section_once_even_if_the_chunk_has_them() -> None:
    assert _piece("Leave is 20 days.", "Leave", "Annual").analysed == (
        "Handbook\nHandbook\nLeave | Annual\nLeave is 20 days."
    )
    chunk = ChunkText(title="handbook-2", source="a/handbook-2.md", section=("Annual", "Annual"), text="Annual")
    assert chunk.analysed == "Annual\nAnnual"
    assert _piece("Text.", "Handbook").analysed == "Handbook\nHandbook\nText."


def test_analysed_text__has_the_terms_that_the_chunk_defines_twice_more() -> None:
    text = "``umask``\n\n  The umask of the process."
    assert _piece(text, "Options").analysed == f"Handbook\nHandbook\nOptions\n``umask``\n``umask``\n{text}"


def test_analysed_text__is_bounded_for_long_titles() -> None:
    long = ChunkText(title="word " * 10_000, source="a.md", section=("part " * 10_000,), text="One.")
    assert len(long.analysed) < 2_000
