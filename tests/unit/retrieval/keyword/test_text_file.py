"""Text files as they come."""

import os
from pathlib import Path

import pytest

from kosmos_rag.core.errors import ParseError, SourceError
from kosmos_rag.retrieval.keyword.paragraphs import read_text

TEXT = "Umsätze je Région\n\nπ ≈ 3.14 😀"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_read_text__reads_unicode_with_and_without_a_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.encode(encoding))
    assert read_text(tmp_path / "a.txt") == TEXT


@pytest.mark.parametrize("order", ["le", "be"])
@pytest.mark.parametrize("width", [16, 32])
def test_read_text__reads_either_byte_order(tmp_path: Path, width: int, order: str) -> None:
    (tmp_path / "a.txt").write_bytes(f"\ufeff{TEXT}".encode(f"utf-{width}-{order}"))
    assert read_text(tmp_path / "a.txt") == TEXT


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"", "empty", "has no text"),
        (b" \n\t\r\n", "empty", "has no text"),
        (b"\xef\xbb\xbf", "empty", "has no text"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary", "binary data"),
        (b"text\0text", "binary", "binary data"),
        (TEXT[:7].encode("cp1252"), "unsupported", "is not UTF-8, see byte 3; save it as UTF-8"),
        (b"\xff\xfea", "unsupported", "is not UTF-16"),
    ],
)
def test_read_text__refuses_what_is_no_text(tmp_path: Path, data: bytes, code: str, message: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(ParseError, match=message) as refused:
        read_text(tmp_path / "a.txt")
    assert refused.value.code == code
    assert str(tmp_path / "a.txt") in str(refused.value)


def test_read_text__names_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nothing\.txt does not exist") as refused:
        read_text(tmp_path / "nothing.txt")
    assert refused.value.code == "not_found"


def test_read_text__refuses_a_folder_and_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(SourceError, match="not a regular file") as refused:
            read_text(path)
        assert refused.value.code == "not_a_file"


def test_read_text__refuses_a_path_that_cannot_exist() -> None:
    with pytest.raises(SourceError, match="cannot be read") as refused:
        read_text(Path("a\0b"))
    assert refused.value.code == "unreadable"
    assert "\0" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_read_text__names_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "a.txt").chmod(0)
    with pytest.raises(SourceError, match="may not be read") as refused:
        read_text(tmp_path / "a.txt")
    assert refused.value.code == "no_permission"
