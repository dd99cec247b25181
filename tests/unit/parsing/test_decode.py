"""Texts of many languages in the encodings that people wrote them in."""

import codecs
import struct

import pytest
from charset_normalizer import from_bytes

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing import detect_small_text, parse
from kosmos_rag.parsing.text.decode import decode, decode_bytes, decode_text, find_codec
from tests.unit.parsing.languages import samples

RUSSIAN = "Вчера в городе открыли новую библиотеку. Дети пришли с родителями."
JAPANESE = "昨日、町に新しい図書館が開きました。子供たちは両親と一緒に来ました。"
POLISH = "Zażółć gęślą jaźń, proszę wysłać zamówienie."
CHINESE = "昨天城里开了一座新的图书馆。"


@pytest.mark.parametrize(("part", "required"), [("development", 141), ("held-out", 164)])
def test_decode__exact_text(part: str, required: int) -> None:
    result = samples(part)
    exact = {label for label, text, data in result if decode(data) == text}
    peer = {label for label, text, data in result if str(from_bytes(data).best()) == text}
    assert len(exact) >= required, sorted(label for label, _, _ in result if label not in exact)
    assert len(exact) > len(peer)


@pytest.mark.parametrize(
    "text",
    [
        "The “new” plan – it’s good. Revenue grew in the second quarter.",
        "Price: £45 per seat, for the first year.",
        "© 2020 Example Inc. All rights reserved.",
        "It was 20 °C outside.",
        "Visit the café today.",
        "Zürich;5\nGenève;6\n",
        "São Paulo",
        "Größe",
        "• one\n• two\n",
        "§ 5 Absatz 3",
    ],
)
def test_decode__few_letters_beyond_ascii_are_western(text: str) -> None:
    assert decode(text.encode("cp1252")) == text


@pytest.mark.parametrize(
    ("head", "encoding", "text"),
    [
        ('<?xml version="1.0" encoding="ISO-8859-2"?>', "iso8859_2", POLISH),
        ("<?xml version='1.0' encoding='windows-1251' standalone='yes'?>", "cp1251", "Да"),
        ('<meta charset="x-sjis">', "cp932", "東京"),
        ("<meta http-equiv=content-type content='text/html; charset=ks_c_5601-1987'>", "cp949", "서울"),
        ("<meta charset=latin2>", "iso8859_2", "Łódź"),
        ("<meta charset=x-mac-cyrillic>", "mac_cyrillic", "Да"),
        ("<meta charset=csISO2022JP>", "iso2022_jp", JAPANESE),
        ('@charset "euc-jp";', "euc_jp", "東京"),
        ("#!/usr/bin/python\n# -*- coding: koi8-r -*-\n", "koi8_r", "Да"),
        ("<meta charset=iso-8859-1>", "cp1252", "€5"),
        ("<meta charset=ibm852>", "cp852", "Łódź"),
        ("<meta charset=us-ascii>", "iso2022_jp", JAPANESE),
        ("<meta charset=no-such-encoding>", "cp1251", RUSSIAN),
        ("<meta charset=utf-8>", "cp1251", RUSSIAN),
        ("<meta charset=utf-16>", "cp1251", RUSSIAN),
        ("<meta charset=iso-8859-1>", "utf-8", RUSSIAN),
        ("<meta charset=hex>", "cp1251", RUSSIAN),
    ],
)
def test_decode__declaration_comes_first(head: str, encoding: str, text: str) -> None:
    decoded = decode_text(head.encode() + text.encode(encoding))
    assert decoded.text == head + text


@pytest.mark.parametrize("encoding", ["utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [RUSSIAN, JAPANESE + "\n", POLISH, "plain words\n", "שלום לכולם, מה שלומכם היום?\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_decode__wide(encoding: str, text: str, mark: str) -> None:
    if not mark and "\0" not in text.encode(encoding).decode("latin-1"):
        pytest.skip("nothing tells it from another encoding")
    decoded = decode_text((mark + text).encode(encoding))
    assert (decoded.text, decoded.encoding, decoded.certain) == (text, encoding, True)


@pytest.mark.parametrize(("encoding", "text"), [("iso2022_jp", JAPANESE), ("iso2022_kr", "서울"), ("hz", CHINESE)])
def test_decode__escapes_in_ascii(encoding: str, text: str) -> None:
    data = text.encode(encoding)
    assert data.isascii()
    assert decode(data) == text
    assert not detect_small_text(data, "a.txt")
    assert parse(SourceDocument(source="a.txt", data=data)).text == text


@pytest.mark.parametrize("text", ["(format t ~{~a~^, ~}) 5", "\x1b[31mred\x1b[0m", "\x1b(B only an escape"])
def test_decode__escapes_that_mean_nothing(text: str) -> None:
    assert decode(text.encode()) == text.replace("\x1b", " ")


@pytest.mark.parametrize("data", [bytes(range(256)) * 8, b"\0" * 99, struct.pack("99d", *range(99))])
def test_decode__binary(data: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        decode(data)
    assert caught.value.code == "binary"


@pytest.mark.parametrize("text", ["Größe: 5 µm", "10 µg", "Fuß"])
def test_decode__few_signs_without_evidence_are_western(text: str) -> None:
    parsed = parse(SourceDocument(source="a.txt", data=text.encode("cp1252")))
    assert parsed.text.strip() == text
    assert [note.code for note in parsed.notes] == ["encoding_uncertain"]


def test_decode__uncertain_encoding_is_noted() -> None:
    (note,) = parse(SourceDocument(source="a.txt", data=RUSSIAN[:41].encode("cp1251"))).notes
    assert note.code == "encoding_uncertain"
    for data in (RUSSIAN.encode(), RUSSIAN.encode("koi8_r"), codecs.BOM_UTF16_LE + RUSSIAN.encode("utf-16-le")):
        assert parse(SourceDocument(source="a.txt", data=data)).notes == ()


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("x-sjis", "cp932"), ("Shift_JIS", "cp932"), ("gb2312", "gb18030"), ("latin1", "cp1252"), ("ascii", "cp1252"),
        ("x-cp1250", "cp1250"), ("ks_c_5601-1987", "cp949"), (" UTF8 ", "utf-8"), ("cp437", "cp437"), ("rot13", None),
        ("base64", None), ("x-user-defined", None), ("no-such", None), ("", None), (None, None), ("a\0b", None),
        ("undefined", None), ("idna", None),
    ],
)  # fmt: skip
def test_find_codec__knows_the_names_of_the_web(label: str | None, codec: str | None) -> None:
    assert find_codec(label) == codec


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gb18030", "他说“使用Python编程”，然后……安装numpy，再运行main.py。\n"),
        ("big5", "他說「使用Python編程」，然後安裝numpy，再執行main.py。\n"),
        ("cp932", "人々はPythonで「プログラム」を書き、main.pyを実行します。ｶﾀｶﾅも。\n"),
        ("euc_jp", "人々はPythonで「プログラム」を書き、main.pyを実行します。\n"),
        ("cp949", "사람들은 Python으로 “프로그램”을 작성하고, main.py를 실행합니다.\n"),
        ("cp1255", 'צה״ל הודיע: "המדד עלה ב־3 אחוזים", כך נמסר מחברת IBM.\n'),
        ("cp1256", "قال: «المؤشر ارتفع»، فهل سيستمر؟ شركة IBM.\n"),
        ("cp1252", "Er sagte: „Der Umsatz – nach Steuern – stieg“, laut „Börsen-Zeitung“ (§ 5).\n"),
        ("cp1251", "Он сказал: «Выручка — по данным IBM — выросла», пишет „Газета“.\n"),
    ],
)
@pytest.mark.parametrize("times", [1, 400, 4_000])
def test_decode__signs_and_names_among_the_words(encoding: str, text: str, times: int) -> None:
    assert decode((text * times).encode(encoding)) == text * times


def test_decode__characters_beyond_the_sample_that_a_larger_encoding_has() -> None:
    text = "天气很好，孩子们和父母一起来。\n" * 8_000 + "镕喆堃"
    assert decode(text.encode("gb18030")) == text


def test_decode_bytes__never_fails() -> None:
    assert decode_bytes("Łódź".encode("iso8859_2"), "latin2") == "Łódź"
    assert decode_bytes(b"", "utf-8") == ""
    assert decode_bytes(b"\0\1\2", None) == "\0\1\2"
