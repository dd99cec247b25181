"""7-Zip archives: the files of an archive, and what hostile ones do."""

import io
import struct
import zlib
from collections.abc import Mapping

import pytest

from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import bounds, parse
from kosmos_rag.parsing.archives.seven_zip import SIGNATURE
from kosmos_rag.parsing.sandbox.client import parse_confined

py7zr = pytest.importorskip("py7zr", reason="needs kosmos-rag[sevenzip]")

MEMBERS: dict[str, str | bytes] = {
    "b.md": "# Notice\n\nNinety days.\n",
    "hr/a.csv": "Country,Capital\nKenya,Nairobi\n",
    "logo.png": b"\x89PNG\r\n\x1a\n\0",
    "__MACOSX/._b.md": b"\0\1",
    "empty.txt": "",
}


def pack(members: Mapping[str, str | bytes], **options: object) -> bytes:
    out = io.BytesIO()
    with py7zr.SevenZipFile(out, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(content, name)
    return out.getvalue()


def rename_member(name: str) -> bytes:
    """Pack a file, write another name into the header, and correct the checksums (the format's 7zFormat.txt)."""
    out = io.BytesIO()
    with py7zr.SevenZipFile(out, "w") as archive:
        archive.set_encoded_header_mode(False)
        archive.writestr("words", "x" * len(name))
    data = out.getvalue()
    offset, size = struct.unpack_from("<QQ", data, 12)
    header = data[32 + offset :][:size].replace(("x" * len(name)).encode("utf-16-le"), name.encode("utf-16-le"))
    start = struct.pack("<QQI", offset, size, zlib.crc32(header))
    return data[:8] + struct.pack("<I", zlib.crc32(start)) + start + data[32 : 32 + offset] + header


def parse_data(data: bytes) -> ParsedDocument:
    return parse(SourceDocument(source="team.7z", data=data))


def read_code(data: bytes) -> str:
    with pytest.raises(ParseError) as refusal:
        parse_data(data)
    return refusal.value.code


def test_parse_archive__each_file_is_a_section_under_its_path() -> None:
    parsed = parse_data(pack(MEMBERS))
    assert [heading.title for heading in parsed.headings] == ["b.md", "Notice", "hr/a.csv"]
    assert "Country: Kenya; Capital: Nairobi" in parsed.text
    assert parsed.notes == ()


@pytest.mark.parametrize("method", ["FILTER_LZMA", "FILTER_BZIP2", "FILTER_DEFLATE", "FILTER_PPMD", "FILTER_ZSTD"])
def test_parse_archive__methods_of_compression(method: str) -> None:
    options = {"order": 6, "mem": 24} if method == "FILTER_PPMD" else {}
    data = pack({"a.txt": "twenty days"}, filters=[{"id": getattr(py7zr, method), **options}])
    assert parse_data(data).text == "a.txt\n\ntwenty days"


def test_parse_archive__is_read_in_the_sandbox() -> None:
    parsed = parse_confined(SourceDocument(source="team.7z", data=pack(MEMBERS)), ParsingSettings())
    assert "Ninety days" in parsed.text


@pytest.mark.parametrize("name", ["line\nbreak.txt", "Grüße 東京.txt", "a" * 200 + ".txt", "%s %(x)s.txt"])
def test_parse_archive__unusual_names(name: str) -> None:
    assert "twenty days" in parse_data(pack({name: "twenty days"})).text


def test_parse_archive__other_encodings_of_members() -> None:
    data = pack({"a.txt": "Müller kauft Äpfel für Öl".encode("cp1252"), "b.txt": "東京都".encode("utf-16")})
    parsed = parse_data(data)
    assert "Müller kauft Äpfel" in parsed.text
    assert "東京都" in parsed.text


def test_parse_archive__archives_in_archives() -> None:
    assert "innermost" in parse_data(pack({"a.7z": pack({"b.txt": "innermost words"})})).text


def test_parse_archive__a_password() -> None:
    assert read_code(pack(MEMBERS, password="x")) == "encrypted"
    assert read_code(pack(MEMBERS, password="x", header_encryption=True)) == "encrypted"


def test_parse_archive__a_member_with_another_name() -> None:
    assert parse_data(rename_member("b.txt")).text == "b.txt\n\nwords"


@pytest.mark.parametrize("name", ["../a.txt", "/etc/a.txt", "a/../../b.txt"])
def test_parse_archive__members_outside_of_it(name: str) -> None:
    """The writer refuses such a name, so it is put into the header."""
    assert read_code(rename_member(name)) == "corrupt"


def test_parse_archive__bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = pack({"a.txt": bytes(5 * 2**20)})
    assert len(bomb) < 2_000
    monkeypatch.setattr(bounds, "MAX_ARCHIVE_BYTES", 2**20)
    assert read_code(bomb) == "too_large"
    assert read_code(pack({f"{number}.txt": bytes(2**19) for number in range(3)})) == "too_large"
    monkeypatch.setattr(bounds, "MAX_ARCHIVE_MEMBERS", 2)
    assert read_code(pack(MEMBERS)) == "too_large"


def test_parse_archive__broken_archives() -> None:
    data = pack({"a.txt": "words " * 1_000})
    for broken in (SIGNATURE, data[:40], data[:-10], SIGNATURE + bytes(200), data[:60] + bytes(20) + data[80:]):
        assert read_code(broken) == "corrupt"


def test_parse_archive__any_broken_byte_is_a_parse_error() -> None:
    data = pack({"a.txt": "some words", "b.txt": "other words"})
    for position in range(6, len(data)):
        broken = bytes([*data[:position], data[position] ^ 0x55, *data[position + 1 :]])
        try:
            parse_data(broken)
        except ParseError:
            continue


def test_parse_archive__without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kosmos_rag.core.extras.is_installed", lambda module: False)
    with pytest.raises(ParseError, match=r"a 7-Zip archive needs py7zr: pip install 'kosmos-rag\[sevenzip\]'"):
        parse_data(pack({"a.txt": "words"}))
