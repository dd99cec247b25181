"""Rows as documents: JSON objects, or rows of a query."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from kosmos_rag.core.config.display import show
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import EVERYONE, PERMISSION_FEED, SourceDocument, are_names
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
    acl: str | None = None
    """The principals that may read the row; None where the spec has them."""
    version: str | None = None
    """Changes with the row, so a listing need not read the others; None without one."""

    @property
    def names(self) -> list[str]:
        """The names of the fields that make a document, each once."""
        options = [name for name in (self.title, self.acl) if name]
        return list(dict.fromkeys([self.id, self.text, *options, *self.metadata]))

    @property
    def listed_names(self) -> list[str]:
        """The names of the fields that a listing reads, each once."""
        if self.version is None:
            return self.names
        return list(dict.fromkeys([self.id, self.version, *([self.acl] if self.acl else [])]))


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
    values = [[name, _hashable(row.get(name))] for name in fields.listed_names]
    roles = [] if fields.acl is None and fields.version is None else [fields.acl, fields.version, *fields.metadata]
    return options.compute_etag(values, fields.title, fields.text, *roles)


def read_acl(value: Any) -> tuple[str, ...]:
    """Return the acl of a row: an array of text, or a JSON array.

    Null, an empty array and everything else mean nobody: a row has no readers before it is known who they are.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return (PERMISSION_FEED,)
    is_list = isinstance(value, list | tuple) and are_names(value) and all(name.strip() for name in value)
    return tuple(dict.fromkeys(value)) if is_list and value and PERMISSION_FEED not in value else (PERMISSION_FEED,)


def list_readers(row: Mapping[str, Any], fields: Fields) -> tuple[str, ...] | None:
    """Return the readers of a row, which may be nobody; None where the spec has them."""
    if fields.acl is None:
        return None
    acl = read_acl(row.get(fields.acl))
    return () if acl == (PERMISSION_FEED,) else acl


def narrow_acl(acl: Sequence[str], readers: Collection[str]) -> tuple[str, ...]:
    """Return the acl of a row without those who were no readers at another time."""
    if EVERYONE in acl:
        common = tuple(readers)
    else:
        common = tuple(name for name in acl if EVERYONE in readers or name in readers)
    return common or (PERMISSION_FEED,)


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
    document = options.document(source, data, title=title, metadata=metadata)
    return document if fields.acl is None else replace(document, acl=read_acl(row.get(fields.acl)))


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
