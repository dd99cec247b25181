"""Read a text file and split it at blank lines into paragraphs.

Files are in UTF-8, or in UTF-16 or UTF-32 by byte order mark.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kosmos_rag.core.errors import ParseError, SourceError


@dataclass(frozen=True, kw_only=True, slots=True)
class Paragraph:
    """Adjacent lines of a text without a blank line between them."""

    text: str
    source: str | None
    """Its file or document; None for a text passed by the caller."""
    line_start: int
    """Counts from 1."""
    line_end: int


def split_paragraphs(text: str, source: str | None = None) -> Iterator[Paragraph]:
    """Yield the paragraphs of a text, trimmed.

    A line of white space is blank; line ends may be those of any system.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for blank, run in groupby(enumerate(lines, start=1), key=lambda line: not line[1].strip()):
        if not blank:
            numbers, parts = zip(*run, strict=True)
            yield Paragraph(text="\n".join(parts).strip(), source=source, line_start=numbers[0], line_end=numbers[-1])


_BYTE_ORDER_MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_text(path: Path) -> str:
    """Read a text file that is not blank.

    Raises:
        SourceError: `not_found`, `not_a_file`, `no_permission`, `unreadable`.
        ParseError: `empty`, `binary` for data that is not text, `unsupported` for text in another encoding.
    """
    text = _decode(_read(path), path)
    if "\0" in text:
        raise ParseError("binary", f"{path} looks like binary data, it contains NUL; give a text file")
    if not text.strip():
        raise ParseError("empty", f"{path} has no text; give a file with text")
    return text


def _read(path: Path) -> bytes:
    try:
        # Asked first: opening a pipe would wait for who writes into it.
        if path.exists() and not path.is_file():
            raise SourceError("not_a_file", f"{path} is not a regular file; give a text file")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise SourceError("not_found", f"{path} does not exist; check the path") from error
    except PermissionError as error:
        raise SourceError("no_permission", f"{path} may not be read by this user; change its permissions") from error
    except (OSError, ValueError) as error:  # ValueError is Python's word for a path that cannot exist
        raise SourceError(
            "unreadable", f"{str(path)!r} cannot be read: {error}; check the path and the disk"
        ) from error


def _decode(data: bytes, path: Path) -> str:
    encoding = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8-sig")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding == "utf-8-sig" and b"\0" in data:
            raise ParseError("binary", f"{path} looks like binary data, it contains NUL; give a text file") from error
        raise ParseError(
            "unsupported", f"{path} is not {error.encoding.upper()}, see byte {error.start:,}; save it as UTF-8"
        ) from error
