"""Divide large files of rows into parts.

Each is a document with whole rows and the header of the file.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO, TextIOWrapper
from itertools import chain
from pathlib import PurePath
from typing import BinaryIO

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import ParseError, SourceError
from kosmos_rag.parsing import bounds, detect, media_types
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.csv import CsvForm, find_form
from kosmos_rag.parsing.text.decode import decode_text, find_marked_encoding
from kosmos_rag.parsing.text.json import parse_json_lines

_PART = re.compile(r"#part-[1-9]\d{0,8}$")
_ETAG = re.compile(r"(?P<etag>.+):(?P<parts>\d+)(?:-(?P<empty>\d+))?", re.DOTALL | re.ASCII)
ROW_TYPES = frozenset({media_types.CSV, media_types.TSV, media_types.JSONL})
"""Media types of files that are divided, and of their parts."""
_JSON_GROWTH = 2
"""Bytes of text from one of JSON, at least: paths repeat the names of what contains a value."""
_ONE_BYTE = "latin-1"
"""Reads bytes as characters, where ASCII is all that has to be recognised."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePart:
    """Where a part of a file is."""

    number: int
    """From 1."""
    offset: int
    length: int
    header: int
    """Bytes at the beginning of the file that come before those of the part."""
    header_rows: int
    skipped_rows: int
    """Rows between the header and the part."""
    media_type: str
    encoding: str | None
    """Of the file; None for UTF-8."""

    def name(self, file: str) -> str:
        """Return the name of the part's document."""
        return name_part(file, self.number)

    @property
    def skipped(self) -> tuple[int, int]:
        """Rows before the ones that the part lacks, and the number of these."""
        return self.header_rows, self.skipped_rows

    def read(self, file: BinaryIO) -> bytes:
        """Return the header and the rows of the part, in UTF-8 where the encoding is known.

        Raises OSError.
        """
        file.seek(0)
        data = file.read(self.header)
        file.seek(self.offset)
        data += file.read(self.length)
        return data.decode(self.encoding, "replace").lstrip("\ufeff").encode() if self.encoding else data


def name_part(file: str, number: int) -> str:
    """Return the name of the document of a part, by its number from 1."""
    return f"{file}#part-{number}"


def number_part(source: str) -> int:
    """Return the number of a part by its name; 0 for other names."""
    return 0 if strip_part(source) == source else int(source.rpartition("-")[2])


def strip_part(source: str) -> str:
    """Return the name of the file of a part; other names unchanged."""
    file = _PART.sub("", source)
    return file if may_have_parts(file) else source


def join_etag(etag: str | None, parts: int, *, empty: int = 0) -> str | None:
    """Return the etag of each part of a file that is stored completely.

    Args:
        parts: number of its parts.
        empty: how many of them have no text, and are not stored.
    """
    return None if etag is None else f"{etag}:{parts}-{empty}" if empty else f"{etag}:{parts}"


def split_etag(etag: str | None) -> tuple[str, int, int]:
    """Return the etag of a file, and its numbers of parts and of stored parts.

    The numbers are 0 where the etag is of no part.
    """
    match = _ETAG.fullmatch(etag or "")
    if match is None:
        return "", 0, 0
    parts = int(match["parts"])
    return match["etag"], parts, parts - int(match["empty"] or 0)


def may_have_parts(source: str) -> bool:
    """Return whether a file of this name is divided where it is large."""
    return media_types.TEXTS.get(PurePath(source).suffix.lower().lstrip(".")) in ROW_TYPES


def measure_limit(settings: IngestionSettings) -> int:
    """Return how many bytes a file may have that is divided: text has more than those."""
    return bounds.MAX_FILE_PARTS * settings.parsing.text_mb * 2**20


def divide_file(file: BinaryIO, source: str, settings: IngestionSettings) -> Sequence[FilePart]:
    """Return the parts of a file of rows; none where its text fits into one document.

    The file is read once, in blocks.

    Raises:
        SourceError: `too_large` for a row or a file beyond the limits.
        OSError: the file cannot be read.
    """
    sample = file.read(bounds.SAMPLE_CHARS)
    if len(sample) < bounds.SAMPLE_CHARS or not may_have_parts(source):
        return ()
    try:
        head = sample[: sample.rfind(b"\n") + 1] or sample
        media_type, encoding = detect(head, source), find_marked_encoding(sample)
        if media_type not in ROW_TYPES or (b"\0" in sample and encoding is None):
            return ()
        form = None if media_type == media_types.JSONL else find_form(decode_text(head).text, media_type)
        growth = 1.0 if form else _measure_json_growth(head)
    except ParseError:
        return ()  # the parser of the whole file reports what is wrong with it
    file.seek(0)
    scan = _Scan(file, source, encoding, form, growth, settings.parsing.text_mb * 2**20)
    try:
        return scan.find_parts(media_type)
    except (UnicodeDecodeError, ParseError):
        return ()  # as above
    finally:
        scan.close()


@dataclass(kw_only=True, slots=True)
class _Rows:
    """Adjacent rows of a file."""

    bytes: int = 0
    rows: int = 0
    text_bytes: int = 0
    """Of their text with the names of columns, at most."""

    def add(self, other: "_Rows") -> None:
        self.bytes += other.bytes
        self.rows += other.rows
        self.text_bytes += other.text_bytes


class _Scan:
    """Reads a file once, and finds where its rows end."""

    def __init__(
        self, file: BinaryIO, source: str, encoding: str | None, form: CsvForm | None, growth: float, text_bytes: int
    ) -> None:
        self._text = TextIOWrapper(file, encoding or _ONE_BYTE, errors="strict", newline="")
        self._encoding = encoding
        self._codec = encoding or _ONE_BYTE
        self._source = source
        self._separator = form.separator if form else None
        self._header_rows = form.header_rows if form else 0
        self._name_bytes = form.name_bytes if form else 0
        self._growth = growth
        self._text_bytes = text_bytes
        self._not_ascii = b""
        self._is_utf8 = True
        self._row = 0

    def close(self) -> None:
        """Leave the file to its owner."""
        self._text.detach()

    def find_parts(self, media_type: str) -> Sequence[FilePart]:
        """Return the parts; none where the whole fits. Raises SourceError, UnicodeDecodeError."""
        header = _Rows()
        for _ in range(self._header_rows):
            header.add(self._read_rows(1))
        blocks, total, is_begun = [replace(header)], header.text_bytes, False
        while (rows := self._read_rows(self._block_chars)).bytes:
            total += rows.text_bytes
            if is_begun and blocks[-1].text_bytes + rows.text_bytes > self._text_bytes // 2:
                blocks.append(_Rows())
                self._check_count(len(blocks))
            blocks[-1].add(rows)
            is_begun = True
        if total <= self._text_bytes:
            return ()
        return list(self._locate(blocks, header, media_type))

    @property
    def _block_chars(self) -> int:
        """Characters that are read together.

        They are fewer where the names of columns or paths are long: those count for each row.
        """
        return min(bounds.SAMPLE_CHARS, 1 + int(self._text_bytes // 4 / (self._growth + self._name_bytes)))

    def _locate(self, blocks: Sequence[_Rows], header: _Rows, media_type: str) -> Iterator[FilePart]:
        encoding = self._find_encoding()
        offset = rows = 0
        for number, block in enumerate(blocks, start=1):
            yield FilePart(
                number=number,
                offset=offset,
                length=block.bytes,
                header=header.bytes if offset else 0,
                header_rows=header.rows,
                skipped_rows=rows - header.rows if offset else 0,
                media_type=media_type,
                encoding=encoding,
            )
            offset, rows = offset + block.bytes, rows + block.rows

    def _find_encoding(self) -> str | None:
        """Return the encoding of the file.

        A part alone may have too few letters to guess it.
        """
        if self._encoding or self._is_utf8:
            return self._encoding
        encoding = decode_text(self._not_ascii).encoding
        return None if encoding == "utf-8" else encoding

    def _read_rows(self, chars: int) -> _Rows:
        """Read rows of about so many characters, to the end of the last one."""
        block = self._text.read(chars)
        if not block:
            return _Rows()
        if not block.endswith("\n"):
            block += self._read_line()
        if self._separator and ('"' in block or chars == 1):
            block, count = self._read_quoted(block)
        else:
            count = _count_lines(block)
        data = block.encode(self._codec)
        self._row += count
        self._check_encoding(data)
        text_bytes = int(len(data) * self._growth) + count * self._name_bytes
        rows = _Rows(bytes=len(data), rows=count, text_bytes=text_bytes)
        if count == 1 and text_bytes > self._text_bytes:
            raise self._row_error()
        return rows

    def _read_line(self) -> str:
        line = self._text.readline(self._text_bytes + 1)
        if len(line) > self._text_bytes:
            raise self._row_error()
        return line

    def _read_quoted(self, block: str) -> tuple[str, int]:
        """Read on to the end of a row whose quoted cells may have several lines.

        Lines with quotes that are invalid are rows, as the parser takes them.
        """
        text = StringIO()
        size = count = 0
        row_begin = row_lines = 0

        def read_lines() -> Iterator[str]:
            nonlocal size, row_lines
            for line in chain(StringIO(block, newline=""), iter(self._read_line, "")):
                size += len(line)
                row_lines += 1
                if size - row_begin > self._text_bytes:
                    raise self._row_error()
                text.write(line)
                yield line

        lines = read_lines()
        while size < len(block):
            try:
                for _ in csv.reader(lines, delimiter=self._separator or ",", strict=True):
                    count, row_begin, row_lines = count + 1, size, 0
                    if size >= len(block):
                        break
            except csv.Error:
                count, row_begin, row_lines = count + row_lines, size, 0
        return text.getvalue(), count

    def _check_encoding(self, data: bytes) -> None:
        if self._encoding or data.isascii():
            return
        if len(self._not_ascii) < bounds.SAMPLE_CHARS:
            self._not_ascii += data
        try:
            data.decode()
        except UnicodeDecodeError:
            if self._is_utf8:
                self._not_ascii, self._is_utf8 = data, False

    def _check_count(self, parts: int) -> None:
        if parts > bounds.MAX_FILE_PARTS:
            size = f"{bounds.MAX_FILE_PARTS:,} parts of {self._text_bytes // 2**21 or 0.5} MB of text"
            raise SourceError(
                "too_large",
                f"{self._source} has more than {size}, half of ingestion.parsing.text_mb each; split it or raise the "
                "limit",
            )

    def _row_error(self) -> SourceError:
        return SourceError(
            "too_large",
            f"a row after row {self._row:,} of {self._source} has more than the {self._text_bytes:,} bytes of text "
            "that ingestion.parsing.text_mb allows; correct its quotes or raise the limit",
        )


def _measure_json_growth(data: bytes) -> float:
    """Return how many bytes of text a byte of JSON becomes. Raises ParseError."""
    text = parse_json_lines(data, OutputLimits()).text
    return max(_JSON_GROWTH, len(text.encode()) / len(data))


def _count_lines(text: str) -> int:
    ends = text.count("\n") + text.count("\r") - text.count("\r\n")
    return ends + (not text.endswith(("\n", "\r")))
