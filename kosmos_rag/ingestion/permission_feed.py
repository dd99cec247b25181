"""Permission feeds: who may read containers, and which documents they contain.

A feed is complete: it names every document that anybody may read by it. It is read and validated completely before
anything is written.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import are_names, is_text
from kosmos_rag.ingestion.sources import confluence_permissions, jira_permissions, rclone_permissions
from kosmos_rag.ingestion.sources.files import open_regular, unreadable_error
from kosmos_rag.ingestion.sources.json_lines import parse_object
from kosmos_rag.ingestion.sources.listing import MAX_SOURCE_CHARS
from kosmos_rag.ingestion.sources.names import printable
from kosmos_rag.ingestion.sources.spec import (
    AtlassianPermissions,
    ConfluencePermissions,
    JsonLinesPermissions,
    PermissionFeedSpec,
    RclonePermissions,
    SqlPermissions,
)
from kosmos_rag.ingestion.sources.sql_connection import ROWS_AT_ONCE, connect, escape_colons, read_only_engine

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Longest line of a feed: a million principals of one container do not come by accident."""

MAX_REPORTED_CONTAINERS = 100
"""Unknown containers that a report names."""

_FIELDS = {"container": frozenset({"principals"}), "document": frozenset({"containers", "principals"})}
"""Fields of a line other than the name, by its kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentGrant:
    """The containers and principals of one document."""

    containers: frozenset[str]
    principals: frozenset[str]
    """Principals that the document alone is shared with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Permissions:
    """The content of a feed."""

    containers: Mapping[str, frozenset[str]]
    """Principals by container."""
    documents: Mapping[str, DocumentGrant]
    """By the name of the document."""
    updated: Mapping[str, str] = field(default_factory=dict)
    """When the text of a document changed last, where the feed says so."""

    def resolve(self) -> dict[str, tuple[str, ...]]:
        """Return the acl of each document, sorted and without duplicates.

        It has the principals of the document's containers and its own.
        """
        acls: dict[DocumentGrant, tuple[str, ...]] = {}
        for grant in set(self.documents.values()):
            principals = grant.principals.union(*(self.containers.get(name, ()) for name in grant.containers))
            acls[grant] = tuple(sorted(principals))
        return {name: acls[grant] for name, grant in self.documents.items()}

    def unknown_containers(self) -> list[str]:
        """Return the containers of documents that the feed does not define.

        Sorted.
        """
        names = {name for grant in set(self.documents.values()) for name in grant.containers}
        return sorted(names - self.containers.keys())


def read_feed(spec: PermissionFeedSpec, settings: IngestionSettings) -> Permissions:
    """Read a feed completely.

    Args:
        spec: where the feed is.
        settings: allowed hosts and limits.

    Raises:
        SourceError: it cannot be read, or a line or a row is not what it must be; the message names it.
        ConfigError: the URL of its database is not set, or cannot be used.
    """
    permissions = _read(spec, settings)
    # Confluence and Jira have answered: the account sees nothing any more, so nobody is known to read anything.
    if not permissions.documents and not isinstance(spec, AtlassianPermissions):
        raise SourceError(
            "unreadable", f"the permission feed {spec.name} names no document, so nothing is changed; check its export"
        )
    return permissions


def _read(spec: PermissionFeedSpec, settings: IngestionSettings) -> Permissions:
    if isinstance(spec, JsonLinesPermissions):
        return _read_json_lines(spec)
    if isinstance(spec, SqlPermissions):
        return _read_sql(spec)
    if isinstance(spec, RclonePermissions):
        return _read_documents(f"rclone://{spec.name}/", rclone_permissions.list_readers(spec.remote))
    if isinstance(spec, ConfluencePermissions):
        return _read_pages(confluence_permissions.list_readers(spec, settings))
    return _read_documents("", jira_permissions.list_readers(spec, settings))


@dataclass(kw_only=True, slots=True)
class _Collected:
    """The part of a feed that is read already."""

    prefix: str
    containers: dict[str, set[str]] = field(default_factory=dict)
    documents: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    updated: dict[str, str] = field(default_factory=dict)

    def add_principals(self, container: str, principals: Any) -> None:
        self.containers.setdefault(container, set()).update(principals)

    def add_document(self, document: str, containers: Any, principals: Any) -> None:
        lies_in, shared_with = self.documents.setdefault(self.prefix + document, (set(), set()))
        lies_in.update(containers)
        shared_with.update(principals)

    def build(self) -> Permissions:
        return Permissions(
            containers={name: frozenset(principals) for name, principals in self.containers.items()},
            documents={
                name: DocumentGrant(containers=frozenset(containers), principals=frozenset(principals))
                for name, (containers, principals) in self.documents.items()
            },
            updated=self.updated,
        )


def _read_json_lines(spec: JsonLinesPermissions) -> Permissions:
    collected = _Collected(prefix=spec.document_prefix)
    lines: dict[tuple[str, str], int] = {}
    for number, line in _lines(spec):
        if not line.strip():
            continue
        try:
            kind, name, row = _parse_line(line)
            if (first := lines.setdefault((kind, name), number)) != number:
                raise SourceError("duplicate", f"{kind} {show(name)} is on line {first} already; write it once")
            if kind == "container":
                collected.add_principals(name, _names(row, "principals"))
            else:
                containers = _names(row, "containers") if "containers" in row else []
                collected.add_document(name, containers, _names(row, "principals") if "principals" in row else [])
        except SourceError as error:
            place = f"{printable(spec.path.name)}, line {number}"
            raise SourceError(error.code, one_line(f"{place}: {error}; nothing was changed")) from error
    return collected.build()


def _lines(spec: JsonLinesPermissions) -> Iterator[tuple[int, bytes]]:
    with open_regular(spec.path, printable(spec.path.name)) as file:
        try:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                if len(line) == MAX_LINE_BYTES:
                    place = f"{printable(spec.path.name)}, line {number}"
                    raise SourceError("too_large", f"{place} has {MAX_LINE_BYTES:,} bytes or more; split the container")
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        except OSError as error:
            raise unreadable_error(printable(spec.path.name), error) from error


def _parse_line(line: bytes) -> tuple[str, str, dict[str, Any]]:
    """Return the kind of a line, its name, and the line.

    Raises SourceError.
    """
    row = parse_object(line)
    kinds = [kind for kind in _FIELDS if kind in row]
    if len(kinds) != 1:
        raise SourceError(
            "unreadable", "it has container and document; give one" if kinds else "container or document is missing"
        )
    (kind,) = kinds
    if unknown := sorted(row.keys() - _FIELDS[kind] - {kind}):
        fields = ", ".join([kind, *sorted(_FIELDS[kind])])
        raise SourceError("unreadable", f"{show(unknown[0])} is no field of a {kind}; known are {fields}")
    if kind == "container" and "principals" not in row:
        raise SourceError("unreadable", "principals is missing; give a list, [] where nobody reads the container")
    return kind, _name(kind, row[kind]), row


def _names(row: Mapping[str, Any], key: str) -> list[str]:
    """Return a list of names. Raises SourceError."""
    value = row[key]
    if not isinstance(value, list):
        raise _fault(key, value, "a list of text")
    if not are_names(value) or not all(map(str.strip, value)):
        position = next(at for at, name in enumerate(value) if not is_text(name) or not name.strip())
        raise _fault(f"{key}[{position}]", value[position], "text that is not blank")
    return value


def _name(key: str, value: Any) -> str:
    """Return a name. Raises SourceError."""
    if not is_text(value) or not value.strip() or len(value) > MAX_SOURCE_CHARS:
        raise _fault(key, value, f"text of 1 to {MAX_SOURCE_CHARS} characters")
    return str(value)


def _fault(key: str, value: Any, expected: str) -> SourceError:
    return SourceError("unreadable", f"{key} is {show(value)}; it must be {expected}")


def _read_documents(prefix: str, readers: Iterable[tuple[str, frozenset[str]]]) -> Permissions:
    """Return who may read each document.

    Of two files with one name, as Google Drive may have, those who may read both.
    """
    acls: dict[str, frozenset[str]] = {}
    for name, principals in readers:
        acls[prefix + name] = principals & acls.get(prefix + name, principals)
    return Permissions(
        containers={},
        documents={name: DocumentGrant(containers=frozenset(), principals=acl) for name, acl in acls.items()},
    )


def _read_pages(pages: Iterable[confluence_permissions.PageReaders]) -> Permissions:
    collected = _Collected(prefix="")
    for page in pages:
        collected.add_document(page.name, (), page.principals)
        collected.updated[page.name] = page.updated
    return collected.build()


def _read_sql(spec: SqlPermissions) -> Permissions:
    collected = _Collected(prefix=spec.document_prefix)
    for row in _rows(spec, "containers_query", {"container", "principal"}, {"container", "principal"}):
        collected.add_principals(row["container"], _present(row, "principal"))
    for row in _rows(spec, "documents_query", {"document"}, {"document", "container", "principal"}):
        collected.add_document(row["document"], _present(row, "container"), _present(row, "principal"))
    return collected.build()


def _present(row: Mapping[str, str], column: str) -> list[str]:
    return [row[column]] if column in row else []


def _rows(spec: SqlPermissions, key: str, required: set[str], allowed: set[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of a query without its nulls. Raises SourceError, ConfigError."""
    from sqlalchemy import text

    query = text(escape_colons(getattr(spec, key))).execution_options(yield_per=ROWS_AT_ONCE)
    place = f"the permission feed {spec.name}, {key}"
    with connect(read_only_engine(spec.url_env), spec.url_env, place) as connection:
        result = connection.execute(query)
        columns = set(result.keys())
        if faults := [*sorted(required - columns), *sorted(columns - allowed)]:
            expected = f"the columns must be {', '.join(sorted(required))}"
            optional = f", and may be {', '.join(sorted(allowed - required))}" if allowed - required else ""
            raise SourceError("unreadable", f"{place}: {show(faults[0])} is missing or not known; {expected}{optional}")
        for number, row in enumerate(result.mappings(), start=1):
            try:
                yield {
                    column: _name(column, str(value) if type(value) in {int, UUID} else value)
                    for column, value in row.items()
                    if value is not None or column in required - {"principal"}
                }
            except SourceError as error:
                raise SourceError(
                    error.code, one_line(f"{place}, row {number}: {error}; nothing was changed")
                ) from error
