"""State of a collection that the pipeline loads before it processes documents."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import psycopg

from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import Space, is_text
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.ingestion.parts import may_have_parts, number_part, split_etag, strip_part
from kosmos_rag.storage.documents import StoredDocuments
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import SpaceStore, TenantRef


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionState:
    """State of a collection, read in one transaction."""

    preset: Preset | None
    """The settings of the collection; None where it has those of the process."""
    languages: tuple[str, ...]
    """Text search configurations of the server."""
    spaces: Sequence[Space]
    """Embedding spaces that vectors are written to, the live one first; empty for a new tenant."""
    fingerprints: dict[uuid.UUID, str]
    """Of those of the documents that are stored, by id."""
    divided: set[str]
    """Names of those of the documents that may have stored parts."""
    parts: set[uuid.UUID] = field(default_factory=set)
    """Parts of files that a run has divided."""
    namesakes: set[uuid.UUID] = field(default_factory=set)
    """Documents of a run that have the name of a part and are none."""

    @property
    def preset_version(self) -> str | None:
        """Version of the preset; None without one."""
        return None if self.preset is None else self.preset.version


def load_state(
    connection: psycopg.Connection, tenant: TenantRef, collection: str, documents: Mapping[uuid.UUID, str]
) -> CollectionState:
    """Read the state of a collection and of documents, given by id and name.

    In the caller's transaction.
    """
    parts = find_part_ids(connection, tenant, collection, documents.values())
    return CollectionState(
        preset=load_preset(connection, tenant.id, collection),
        languages=tuple(name for (name,) in connection.execute(statement("text_search_languages")).fetchall()),
        spaces=SpaceStore(connection, tenant.id).list_writable(),
        fingerprints=load_fingerprints(connection, tenant.id, list(documents)),
        divided=set(map(strip_part, parts.values())),
    )


def load_fingerprints(
    connection: psycopg.Connection, tenant_id: uuid.UUID, document_ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, str]:
    """Read the fingerprints of those of the documents that are stored, by id.

    In the caller's transaction.
    """
    values = {"tenant_id": tenant_id, "document_ids": list(document_ids)}
    return dict(connection.execute(statement("fingerprints"), values).fetchall())


def load_preset(connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str) -> Preset | None:
    """Read the preset of a collection in the caller's transaction.

    The result is None where it has none.
    """
    values = {"tenant_id": tenant_id, "collection": collection}
    row = connection.execute(statement("preset_of_collection"), values).fetchone()
    return None if row is None else Preset(name=row[0], content=row[1])


def require_preset(collection: str, job_version: str | None, current: Preset | None) -> None:
    """Require the preset that a job was enqueued under.

    Raises IngestionError if the collection has another one now.

    A document of a collection that restricts its readers must not be ingested under settings that do not.

    Args:
        job_version: version of the preset that the job was enqueued under; None requires none.
        current: preset that the collection has now.
    """
    if job_version is None or (current is not None and current.version == job_version):
        return
    if current is None:
        raise IngestionError(
            "preset_missing",
            f"the preset of the collection {collection} was deleted; create it again, then enqueue again",
        )
    raise IngestionError(
        "preset_changed",
        f"the job was enqueued under another preset than {current.name}, which the collection {collection} has now; "
        "enqueue it again",
    )


class StoredSource(NamedTuple):
    """A stored document, without its name."""

    id: uuid.UUID
    is_part: bool
    """Whether it is a part of a large file."""


def load_sources(
    connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str, *, prefix: str | None = None
) -> dict[str, StoredSource]:
    """Read the documents of a collection by source, in source order.

    In the caller's transaction.

    Args:
        connection: within a transaction of the tenant.
        prefix: only sources that start with it.
    """
    values = {"tenant_id": tenant_id, "collection": collection, "prefix": prefix}
    return {source: StoredSource(*row) for source, *row in connection.execute(statement("sources"), values)}


def find_part_ids(
    connection: psycopg.Connection, tenant: TenantRef, collection: str, sources: Iterable[str]
) -> dict[uuid.UUID, str]:
    """Return the names of the stored parts of files, by id.

    In the caller's transaction.
    """
    return {part.id: part.source for part in load_parts(connection, tenant.id, collection, sources)}


class StoredPart(NamedTuple):
    """A stored part of a large file."""

    id: uuid.UUID
    source: str
    etag: str | None


def load_parts(
    connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str, sources: Iterable[str]
) -> list[StoredPart]:
    """Read the stored parts of files.

    In the caller's transaction.
    """
    files = [document_id(tenant_id, collection, name) for name in filter(is_text, sources) if may_have_parts(name)]
    if not files:
        return []
    values = {"tenant_id": tenant_id, "collection": collection, "file_ids": files}
    return list(map(StoredPart._make, connection.execute(statement("parts_of_files"), values)))


def find_namesakes(
    connection: psycopg.Connection, tenant_id: uuid.UUID, document_ids: Collection[uuid.UUID]
) -> set[uuid.UUID]:
    """Return the stored documents among these ids of parts that are no parts.

    In the caller's transaction.
    """
    stored = StoredDocuments(connection, tenant_id).read_file_ids(document_ids)
    return {key for key, file in stored.items() if file is None}


def find_stale_parts(
    connection: psycopg.Connection,
    tenant: TenantRef,
    collection: str,
    file: str,
    count: int,
    empty: Set[str],
) -> list[uuid.UUID]:
    """Return the stored documents of a file that it no longer has: the whole, or parts.

    In the caller's transaction.

    Args:
        count: number of its parts.
        empty: names of those without text.
    """
    parts = find_part_ids(connection, tenant, collection, [file])
    stale = [key for key, part in parts.items() if number_part(part) > count or part in empty]
    return [*stale, document_id(tenant.id, collection, file)]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """What is stored of a file of a source."""

    etag: str | None
    """None where the source gave none, or not all parts are stored."""
    parts: int = 0
    """Number of parts; 0 for a file that is one document."""


def read_stored_files(
    connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str, etags: Mapping[str, str | None]
) -> dict[str, StoredFile]:
    """Return what is stored of files, by name.

    Of a divided one only if all parts with text are of this etag. In the caller's transaction.

    Args:
        etags: present etag of each file.
    """
    documents = StoredDocuments(connection, tenant_id)
    wholes = documents.read_etags([document_id(tenant_id, collection, source) for source in etags])
    stored = {source: StoredFile(etag=etag) for source, etag in wholes.items()}
    changed = [source for source, etag in etags.items() if source not in wholes or wholes[source] != etag]
    part_etags: dict[str, Counter[str | None]] = defaultdict(Counter)
    for part in load_parts(connection, tenant_id, collection, changed):
        part_etags[strip_part(part.source)][part.etag] += 1
    for file, counts in part_etags.items():
        for text, parts in counts.items():
            etag, count, stored_count = split_etag(text)
            if count and etag == etags[file] and parts == stored_count:
                stored[file] = StoredFile(etag=etag, parts=count)
    return stored
