"""A JSON Lines file as a source. Each object is a document."""

import json
import math
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal, NoReturn

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError, first_line
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.files import open_regular, too_large_error, unreadable_error
from kosmos_rag.ingestion.sources.listing import Entry, Listing, build_failure, drop_duplicates
from kosmos_rag.ingestion.sources.names import FileNames, RootName
from kosmos_rag.ingestion.sources.rows import Fields, build_row_document, compute_row_etag, read_row_id
from kosmos_rag.ingestion.sources.spec import DocumentOptions, NotBlank, SourcePath


class JsonLinesSpec(DocumentOptions):
    """A JSON Lines file, with the roles of its fields."""

    kind: Literal["json_lines"] = "json_lines"
    path: SourcePath
    root: RootName | None = None
    """What the names of the documents begin with; None: the name of the file's folder."""
    id_field: NotBlank = "id"
    text_field: NotBlank = "text"
    title_field: NotBlank | None = None
    metadata_fields: tuple[NotBlank, ...] = ()


class JsonLinesSource:
    """The objects of one file.

    A document is named by the file and its id, and located by its byte offset.
    """

    def __init__(self, spec: JsonLinesSpec, settings: IngestionSettings) -> None:
        self._spec = spec
        names = FileNames(spec.path, spec.root)
        self._path = names.path
        self._name = names.to_name(names.path)
        self._max_bytes = settings.max_file_bytes
        self._fields = Fields(
            id=spec.id_field, text=spec.text_field, title=spec.title_field, metadata=spec.metadata_fields
        )

    def listing(self) -> Listing:
        """Start a listing, in the order of the lines.

        A line that cannot be read is a failure with its number.
        """
        prefix = f"{self._name}#"
        return Listing(self._name, drop_duplicates(self._entries()), lambda source: source.startswith(prefix))

    def load(self, entry: Entry) -> SourceDocument:
        """Read the line of an entry.

        Raises SourceError, `not_found` if another line is at its offset.
        """
        offset, length = entry.locator["offset"], entry.locator["length"]
        with open_regular(self._path, self._name) as file:
            try:
                file.seek(offset)
                line = file.read(length)
            except OSError as error:
                raise unreadable_error(self._name, error) from error
        try:
            row = parse_object(line)
            is_stale = self._build_source(row) != entry.source
        except SourceError:
            is_stale = True
        if is_stale:
            raise SourceError("not_found", f"{entry.source} is no longer at byte {offset}; list the file again")
        return build_row_document(row, self._fields, self._spec, source=entry.source, max_bytes=self._max_bytes)

    def _entries(self) -> Iterator[Entry | IngestFailure]:
        with open_regular(self._path, self._name) as file:
            for number, (offset, line) in enumerate(self._lines(file), start=1):
                if not line.strip():
                    continue
                try:
                    if len(line) > self._max_bytes:
                        raise too_large_error("it", self._max_bytes)
                    row = parse_object(line)
                    yield Entry(
                        source=self._build_source(row),
                        etag=compute_row_etag(row, self._fields, self._spec),
                        locator={"offset": offset, "length": len(line)},
                    )
                except SourceError as error:
                    location = f"{self._name}, line {number}"
                    yield build_failure(location, SourceError(error.code, one_line(f"{location}: {error}")))

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Yield each line with its offset.

        A line over the size limit is truncated.
        """
        try:
            offset = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
            file.seek(offset)
            while line := file.readline(self._max_bytes + 1):
                yield offset, line
                while not line.endswith(b"\n") and (continuation := file.readline(self._max_bytes + 1)):
                    line = continuation
                offset = file.tell()
        except OSError as error:
            raise unreadable_error(self._name, error) from error

    def _build_source(self, row: dict[str, Any]) -> str:
        return f"{self._name}#{read_row_id(row, self._fields.id)}"


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises SourceError."""
    try:
        row = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise SourceError("unreadable", f"not JSON ({first_line(error)}); correct it") from error
    if not isinstance(row, dict):
        raise SourceError("unreadable", f"a JSON {type(row).__name__}, not an object; write each line as one")
    return row


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse_constant(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has")
