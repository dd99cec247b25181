"""Bytes of any encoding become clean text."""

import random

import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse

FRENCH = "Le café crème à la carte est très agréable en été.\n"
RUSSIAN = "Привет, мир. Это простой текст на русском языке.\n"
JAPANESE = "これは日本語のテキストです。検索システム。\n"


def parse_bytes(data: bytes, source: str = "a.txt") -> ParsedDocument:
    return parse(SourceDocument(source=source, data=data))


def parse_code(data: bytes, source: str = "a.txt") -> str:
    with pytest.raises(ParseError) as caught:
        parse_bytes(data, source)
    assert "\n" not in str(caught.value)
    return caught.value.code


def test_parse_text__keeps_everything_but_line_ends() -> None:
    parsed = parse_bytes(b"  SELECT 1;\r\n\r\nSELECT\t2;\rSELECT 3;  \n", "a.log")
    assert parsed.text == "  SELECT 1;\n\nSELECT\t2;\nSELECT 3;  \n"
    assert (parsed.media_type, parsed.title, parsed.headings, parsed.pages) == ("text/plain", None, (), ())
    assert parsed.find_line(parsed.text.index("3")) == 4


def test_parse_text__does_not_compose_characters() -> None:
    assert parse_bytes("e\u0301 \u00e9".encode()).text == "e\u0301 \u00e9"


def test_parse_text__title_of_the_source_document() -> None:
    assert parse(SourceDocument(source="a.txt", data=b"x", title="Given")).title == "Given"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [FRENCH, RUSSIAN, "plain words 😀\r\nline two\n"])
def test_parse_text__unicode_encodings(encoding: str, text: str) -> None:
    assert parse_bytes(text.encode(encoding)).text == text.replace("\r\n", "\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_parse_text__big_endian_mark(encoding: str) -> None:
    assert parse_bytes(("\ufeff" + FRENCH).encode(f"{encoding}-be")).text == FRENCH


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "caf\u00e9"),
        ("latin-1", FRENCH),
        ("cp1252", "Gr\u00f6\u00dfe \u2013 \u201cquoted\u201d na\u00efve \u20ac5"),
        ("cp1251", RUSSIAN),
        ("koi8-r", RUSSIAN),
        ("shift_jis", JAPANESE),
        ("gb18030", "这是一个中文文档，用于测试。"),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy"),
    ],
)
def test_parse_text__legacy_encodings(encoding: str, text: str) -> None:
    assert parse_bytes(text.encode(encoding)).text == text


def test_parse_text__legacy_encoding_shows_late() -> None:
    ascii_lines = b"nothing to see here\n" * 20_000
    assert parse_bytes(ascii_lines + FRENCH.encode("latin-1") * 3_000).text.endswith(FRENCH)


@pytest.mark.parametrize("between", ["", " "])
def test_parse_text__long_line_of_a_multibyte_encoding(between: str) -> None:
    text = "line one\n" + f"日本語のテキスト{between}" * 10_000
    assert parse_bytes(text.encode("shift_jis")).text[:100] == text[:100]


def test_parse_text__stray_latin1_in_utf8() -> None:
    data = (FRENCH * 3).encode() + "Zürich €".encode("cp1252")
    assert parse_bytes(data).text == FRENCH * 3 + "Zürich €"


def test_parse_text__encodings_in_equal_parts() -> None:
    text = parse_bytes(RUSSIAN.encode("cp1251") + RUSSIAN.encode() + FRENCH.encode("latin-1")).text
    assert text.count("\n") == 3


def test_parse_text__surrogates_are_removed_or_joined() -> None:
    assert parse_bytes(b"a\xed\xa0\x80b").text == "ab"
    assert parse_bytes(b"a\xed\xa0\xbd\xed\xb8\x80b\xed\xb0\x80").text == "a😀b"
    assert parse_bytes("a\ud800b".encode("utf-16", "surrogatepass")).text.replace("\ufffd", "") == "ab"


def test_parse_text__control_characters_become_spaces() -> None:
    assert parse_bytes(b"a\x0cb\x01c\x1bd\x0be\tf\x7fg").text == "a b c d e\tf\x7fg"


def test_parse_text__sparse_nuls_are_removed() -> None:
    assert parse_bytes(b"word " * 400 + b"\0end").text == "word " * 400 + "end"


@pytest.mark.parametrize(
    "data",
    [
        b"text\0text",
        b"word " * 400 + b"\0\0\0",
        b"word " * 400 + b"\0\x01",
        random.Random(1).randbytes(4096),
        b"".join(number.to_bytes(4, "little") for number in range(1000)),
    ],
    ids=["one", "dense", "with controls", "noise", "integers"],
)
def test_parse_text__binary_under_a_text_name(data: bytes) -> None:
    assert parse_code(data) == "binary"
    with pytest.raises(ParseError, match="looks like binary data, not text"):
        parse_bytes(data)


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\x0c\x0c", b"\xed\xa0\x80"])
@pytest.mark.parametrize("source", ["a.txt", "a.md", "a.html"])
def test_parse_text__nothing_in_it_is_empty(data: bytes, source: str) -> None:
    assert parse_code(data, source) == "empty"
