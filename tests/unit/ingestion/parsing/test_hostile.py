"""Whatever the bytes are: a document with text, or a ParseError, and soon."""

import random
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.ingestion.parsing import parse

CODES = {"empty", "binary", "corrupt", "encrypted", "no_text", "unsupported", "too_large"}
NAMES = ["a.txt", "a.md", "a.html"]
MEGABYTE = 10**6
TAGS = "h1 /h1 h2 li ul /ul table tr td /table pre /pre br p p/hidden /p svg math"
HTML_PIECES = [*(f"<{tag}>" for tag in TAGS.split()), "word", "&#13;", " ", "\n", "\xa0"]


def check(data: bytes, source: str) -> None:
    try:
        parsed = parse(SourceDocument(source=source, data=data))
    except ParseError as error:
        failure = error
    else:
        check_parsed(parsed)
        return
    assert failure.code in CODES
    assert "\n" not in str(failure)


def check_parsed(parsed: ParsedDocument) -> None:
    assert parsed.text.strip()
    assert "\0" not in parsed.text
    assert "\r" not in parsed.text
    parsed.text.encode()
    starts = [heading.start for heading in parsed.headings]
    assert starts == sorted(starts)
    assert all(0 <= start < len(parsed.text) for start in starts)
    assert all(heading.title.strip() for heading in parsed.headings)
    assert list(parsed.pages) == sorted(set(parsed.pages))


def seconds_for(data: bytes, source: str) -> float:
    begin = time.perf_counter()
    check(data, source)
    return time.perf_counter() - begin


@given(data=st.binary(max_size=200), source=st.sampled_from(NAMES))
@example(data=b"\xed\xa0\x80", source="a.md")
@example(data=b"<html><h1>&#13;&#10;x", source="a.html")
def test_parse__arbitrary_bytes(data: bytes, source: str) -> None:
    check(data, source)


@given(
    text=st.text(max_size=200),
    encoding=st.sampled_from(["utf-8", "utf-16", "utf-16-le", "utf-32", "cp1252", "shift_jis"]),
    source=st.sampled_from(NAMES),
)
def test_parse__arbitrary_text(text: str, encoding: str, source: str) -> None:
    check(text.encode(encoding, "replace"), source)


@given(
    pieces=st.lists(
        st.sampled_from(HTML_PIECES),
        max_size=60,
    )
)
def test_parse__arbitrary_html(pieces: list[str]) -> None:
    check(("<!doctype html>" + "".join(pieces)).encode(), "a")


@given(
    lines=st.lists(
        st.sampled_from(["# a", "#", "##  ", "---", "===", "```", "~~~~", "words", "", "- item", "   ", "title: x"]),
        max_size=30,
    )
)
def test_parse__arbitrary_markdown(lines: list[str]) -> None:
    check("\n".join(lines).encode(), "a.md")


@pytest.mark.parametrize("kind", ["report_pdf", "report_docx"])
def test_parse__mutated_bytes(kind: str, request: pytest.FixtureRequest) -> None:
    original: bytes = request.getfixturevalue(kind)
    dice = random.Random(20_260_101)
    for _ in range(200):
        data = bytearray(original)
        for _ in range(dice.randint(1, 20)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        check(bytes(data), "a")


def test_parse__fifty_megabytes_in_one_line() -> None:
    parsed = parse(SourceDocument(source="a.txt", data=b"word " * 10 * MEGABYTE))
    assert len(parsed.text) == 50 * MEGABYTE


def test_parse__fifty_megabytes_of_legacy_text_in_one_line() -> None:
    parsed = parse(
        SourceDocument(source="a.txt", data="Le café est très agréable. ".encode("latin-1") * (2 * MEGABYTE))
    )
    assert parsed.text.endswith("Le café est très agréable. ")


@pytest.mark.parametrize("source", NAMES)
def test_parse__one_character_a_million_times(source: str) -> None:
    for character in "#<`~>-=*_[&| \n\t":
        assert seconds_for(f"x\n{character * MEGABYTE}y".encode(), source) < 5


@pytest.mark.parametrize(
    "text",
    [
        "<!--" * MEGABYTE,
        "<!---->" * 200_000,
        "<?" * MEGABYTE,
        "# " + "a " * MEGABYTE + "#",
        "# a" + " " * MEGABYTE + "#" * MEGABYTE + "b",
        "x\n" + "=" * MEGABYTE + " " * MEGABYTE + "x",
        "```" + " " * MEGABYTE + "`",
        "---\ntitle: " + "a  " * MEGABYTE,
        " \n" * MEGABYTE,
        "<!doctype html>" + "<a" * 500_000,
        "<!doctype html>" + "</b " * 250_000,
    ],
    ids=lambda text: repr(text[:16]),
)
@pytest.mark.parametrize("source", NAMES)
def test_parse__hostile_repetition_takes_linear_time(text: str, source: str) -> None:
    assert seconds_for(text.encode(), source) < 10
