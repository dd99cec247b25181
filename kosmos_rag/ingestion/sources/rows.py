"""Rows as documents: JSON objects, or rows of a query."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from kosmos_rag.core.config.display import show
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.ingestion.sources.files import too_large_error
from kosmos_rag.ingestion.sources.spec import DocumentOptions

RowId = str | int


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """The roles of the fields of a row."""

    id: str
    text: str
    title: str | None
    metadata: Sequence[str]

    @property
    def names(self) -> list[str]:
        """The names of the fields, each once."""
        return list(dict.fromkeys([self.id, self.text, *([self.title] if self.title else []), *self.metadata]))


def read_row_id(row: Mapping[str, Any], field: str) -> RowId:
    """Return the id of a row.

    Raises SourceError if it has none.
    """
    value = row.get(field)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise SourceError("unreadable", f"{field} is {show(value)}; an id must be text or an integer")
    return value


def compute_row_etag(row: Mapping[str, Any], fields: Fields, options: DocumentOptions) -> str:
    """Return an etag of the fields that make a row's document.

    Args:
        row: The row by field name.
        fields: The roles of its fields.
        options: Options of the source's documents.
    """
    return options.compute_etag([[name, _hashable(row.get(name))] for name in fields.names], fields.title, fields.text)


def build_row_document(
    row: Mapping[str, Any], fields: Fields, options: DocumentOptions, *, source: str, max_bytes: int
) -> SourceDocument:
    """Build the document of a row.

    A field that is absent or null gives no metadata.

    Args:
        row: The row by field name.
        fields: The roles of its fields.
        options: Options of the source's documents.
        max_bytes: Maximum size of its text.

    Raises:
        SourceError: The row has no text, or too much.
    """
    data = _to_bytes(row.get(fields.text), fields.text, source)
    if len(data) > max_bytes:
        raise too_large_error(source, max_bytes)
    title = row.get(fields.title) if fields.title else None
    if title is not None and not isinstance(title, str):
        raise SourceError("unreadable", f"{source}: {fields.title} is {show(title)}; a title must be text")
    metadata = {name: _json_value(row[name]) for name in fields.metadata if row.get(name) is not None}
    return options.document(source, data, title=title, metadata=metadata)


def _to_bytes(value: object, field: str, source: str) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")  # a lone surrogate, which JSON can hold, becomes a question mark
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    if value is None:
        raise SourceError("unreadable", f"{source} has no {field}; give it a text, or leave it out")
    raise SourceError("unreadable", f"{source}: {field} is {show(value)}; it must be text")


def _json_value(value: Any) -> Any:
    """Convert a database value to JSON.

    Types that JSON lacks become text, decimal numbers floats.
    """
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, UUID):
        return str(value)
    return value


def _hashable(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return json.dumps(value, sort_keys=True, default=str)
