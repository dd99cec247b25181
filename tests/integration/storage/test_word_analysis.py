"""Texts analysed word by word have the tsvectors of whole texts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos_rag.core.text.analysis import index_text
from kosmos_rag.storage import word_analysis
from kosmos_rag.storage.analysis import Analysis, parse_tsvectors, send_texts
from kosmos_rag.storage.binary import array, register_arrays
from kosmos_rag.storage.sql import statement

WORDS = ("the", "budgets", "Running", "approved,", "of", "a", "storage", "invoice", "2024", "state-of-the-art", "is")
_ASCII = (
    "the of ab 1 . : / @ - + _ & ; % # ' < > = ? ~ ( ) E , .. http:// www. &amp; &#38; 1e5 -5 kosmosrag h@a.org /usr"
)
_OTHERS = ("\u00a0", "\u2003", "\x1c", "\u200b", "\uff1c", "\uff1e", "\u4e2d", "\x0b", "\x85")
PIECES = st.sampled_from((*_ASCII.split(), *_OTHERS))
TEXTS = st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=8).flatmap(
    lambda words: st.sampled_from([" ", "\n", "\t ", "\r\n", "\f"]).map(lambda space: space.join(words))
)


@pytest.fixture(scope="module")
def connection(server: Any, template: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url(template), autocommit=True) as opened:
        register_arrays(opened)
        yield opened


def _statements(connection: psycopg.Connection, texts: Sequence[str], language: str) -> tuple[list[bytes], list[str]]:
    """Return the tsvectors of texts, and the names of the statements that were sent for them."""
    queries = []

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
            queries.append(query)
            return super().execute(query, *arguments, **options)

    connection.cursor_factory = Cursor
    try:
        analysis = send_texts(connection, texts, [language] * len(texts)).read()
    finally:
        connection.cursor_factory = psycopg.Cursor
    _assert_arrays(analysis)
    names = [name for name in ("word_analysers", "analyse_words", "analyse") if statement(name) in queries]
    return analysis.tsvectors, names


def _assert_arrays(analysis: Analysis) -> None:
    """The arrays are what the tsvectors contain."""
    expected = parse_tsvectors(analysis.tsvectors)
    assert analysis.vocabulary == expected.vocabulary
    entries = zip(analysis.rows.tolist(), analysis.lexemes.tolist(), analysis.frequencies.tolist(), strict=True)
    assert sorted(entries) == sorted(
        zip(expected.rows.tolist(), expected.lexemes.tolist(), expected.frequencies.tolist(), strict=True)
    )


def _whole(connection: psycopg.Connection, texts: Sequence[str], language: str) -> list[bytes]:
    """Return the tsvectors of texts as the server analyses whole texts."""
    query = "SELECT to_tsvector(%s::regconfig, t) FROM unnest(%b::text[]) WITH ORDINALITY AS u (t, n) ORDER BY n"
    values = (language, array(connection, "text", [index_text(text) for text in texts]))
    return [tsvector for (tsvector,) in connection.cursor(binary=True).execute(query, values).fetchall()]


def _repeat(text: str = "") -> list[str]:
    """Return a text among others of known words, so that most words are known."""
    return [text, *(" ".join(WORDS[number % 7 :] + WORDS) for number in range(60))]


@given(text=TEXTS)
@example(text="\uff1ctag attribute\uff1d\uff02of the\uff02\uff1e words")  # brackets of full width are a tag
@example(text=".. of")
@example(text="of ..")
@example(text="http://host.org/a/b, the http:// path")
@example(text="kosmosrag kosmosrag the")
def test_send_texts__has_the_tsvectors_of_whole_texts(text: str, connection: psycopg.Connection) -> None:
    for language in ("english", "simple"):
        plain = [text for text in _repeat(text) if text.isascii() or ("é" not in text and "ß" not in text)]
        assert _statements(connection, plain, language)[0] == _whole(connection, plain, language)


@pytest.mark.parametrize("language", ["english", "simple", "german", "french", "russian", "arabic", "danish"])
def test_send_texts__of_prose_in_any_language(language: str, connection: psycopg.Connection) -> None:
    pages = (Path(__file__).parents[3] / "docs").glob("*.md")
    paragraphs = [text for page in sorted(pages)[:20] for text in page.read_text(encoding="utf-8").split("\n\n")]
    texts = [text for text in paragraphs if text.isascii()]
    tsvectors, names = _statements(connection, texts, language)
    if language != "german":  # whose compounds are split in each text
        assert tsvectors == _whole(connection, texts, language)
    assert "word_analysers" in names


def test_send_texts__asks_for_no_known_word(connection: psycopg.Connection) -> None:
    _statements(connection, _repeat(), "english")
    assert _statements(connection, _repeat(), "english")[1] == ["word_analysers"]
    assert _statements(connection, _repeat("newspaper"), "english")[1] == ["word_analysers", "analyse_words"]


def test_send_texts__has_few_texts_or_new_words_analysed_whole(connection: psycopg.Connection) -> None:
    assert _statements(connection, ["of few texts"], "english")[1] == ["analyse"]
    new = [f"unknown{number}x other{number}y" for number in range(40)]
    assert _statements(connection, new, "english")[1] == ["word_analysers", "analyse"]


@pytest.mark.parametrize(
    "text", ["word " * 300, "a,b," * 20_000, "budget," * 300, "kosmosrag," * 400, " ".join(map(str, range(20_000)))]
)
def test_send_texts__with_more_positions_than_a_tsvector_keeps(text: str, connection: psycopg.Connection) -> None:
    texts = [text, *[text for text in _repeat() for _ in range(50)]]
    assert _statements(connection, texts, "english")[0] == _whole(connection, texts, "english")


def test_send_texts__with_accents_beside_others(connection: psycopg.Connection) -> None:
    tsvectors, names = _statements(connection, _repeat("le café"), "english")
    assert b"cafe\0" in tsvectors[0]
    assert "analyse" in names
    assert tsvectors[1:] == _whole(connection, _repeat(), "english")[1:]


def test_send_texts__follows_a_changed_configuration(connection: psycopg.Connection) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE TEXT SEARCH CONFIGURATION public.changing (COPY = pg_catalog.english)")
        before = _statements(connection, _repeat(), "public.changing")[0]
        connection.execute(
            "ALTER TEXT SEARCH CONFIGURATION public.changing ALTER MAPPING FOR asciiword WITH pg_catalog.simple"
        )
        after = _statements(connection, _repeat(), "public.changing")[0]
        assert before != after == _whole(connection, _repeat(), "public.changing")


def test_send_texts__leaves_words_that_a_thesaurus_joins_to_the_server(connection: psycopg.Connection) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE TEXT SEARCH CONFIGURATION public.joining (COPY = pg_catalog.english)")
        connection.execute(
            "CREATE TEXT SEARCH DICTIONARY public.joined "
            "(TEMPLATE = thesaurus, DictFile = thesaurus_sample, Dictionary = pg_catalog.english_stem)"
        )
        connection.execute(
            "ALTER TEXT SEARCH CONFIGURATION public.joining "
            "ALTER MAPPING FOR asciiword WITH public.joined, english_stem"
        )
        assert _statements(connection, _repeat(), "public.joining")[1] == ["word_analysers", "analyse"]


def test_send_texts__starts_a_full_cache_again(connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_analysis, "_MAX_BYTES", 200)
    for number in range(4):
        texts = _repeat(" ".join(f"other{number}x{at}" for at in range(10)))
        assert _statements(connection, texts, "english")[0] == _whole(connection, texts, "english")
