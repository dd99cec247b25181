"""Access reviews: who may read a document, and what a reader may read.

Row-level security decides: each right is what the database showed to a reader with that principal.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Literal

from psycopg.rows import dict_row

from kosmos_rag.core.config import RagSettings
from kosmos_rag.core.errors import IngestionError, RequestError
from kosmos_rag.core.types import EVERYONE, AccessGrant, Filter, SourceDocument, are_names
from kosmos_rag.engine.api_keys import ApiKeyInfo, ApiKeys
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.engine.csv_text import write_csv
from kosmos_rag.engine.sessions import TenantSessions
from kosmos_rag.ingestion.acl import apply_access_policy
from kosmos_rag.retrieval.filters import compile_filter, require_approved
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

Position = tuple[str, str]
"""Source and collection of a document: the order of a review."""


@name_wrong_arguments()
class TenantAccess:
    """Access reviews of a tenant, for its administrators. Thread-safe.

    They name documents of all readers. Every call raises ConfigError without `database.worker_url`, and DatabaseError.
    """

    def __init__(
        self,
        sessions: TenantSessions,
        owner: TenantRef,
        api_keys: ApiKeys,
        settings_of: Callable[[str], RagSettings],
    ) -> None:
        """Prepare the reviews.

        Args:
            api_keys: Whose principals are named.
            settings_of: Returns the settings of a collection.
        """
        self._sessions = sessions
        self._owner = owner
        self._api_keys = api_keys
        self._settings_of = settings_of

    def review_document(self, document_id: uuid.UUID) -> list[AccessGrant] | None:
        """Return who may read a document, in the order of its acl.

        The result is empty where nobody may, and None where there is no such document.
        """
        documents = self._read_documents([document_id])
        if not documents:
            return None
        (document,) = documents.values()
        principals = self._list_admitted(document_id, document["acl"])
        return list(self._build_grants([(document_id, principals)], documents))

    def review_reader(
        self, principals: Sequence[str], *, after: Position | None = None, limit: int = 500
    ) -> tuple[list[AccessGrant], Position | None]:
        """Return what a reader may read, by source.

        Each principal that lets the reader has a row. Also returns the position after which the next page begins; None
        on the last page.

        Args:
            principals: What the reader holds, without `everyone`.
            after: Position that the previous call returned; None for the first page.

        Raises RequestError for malformed principals.
        """
        if not are_names(principals):
            raise RequestError(f"principals are {principals!r}; use names such as department:finance")
        rows = self._list_readable([EVERYONE, *principals], after, limit + 1)
        page = rows[:limit]
        documents = self._read_documents([row["id"] for row in page])
        grants = list(self._build_grants([(row["id"], row["principals"]) for row in page], documents))
        more = len(rows) > limit
        return grants, (page[-1]["source"], page[-1]["collection"]) if more else None

    def iter_reader(self, principals: Sequence[str]) -> Iterator[AccessGrant]:
        """Yield all that a reader may read. Raises as `review_reader`."""
        grants, after = self.review_reader(principals)
        yield from grants
        while after is not None:
            grants, after = self.review_reader(principals, after=after)
            yield from grants

    def principals_of_key(self, name: str) -> tuple[str, ...]:
        """Return the principals of an API key. Raises RequestError without a valid one."""
        for key in self._list_keys():
            if key.name == name:
                return key.principals
        raise RequestError(f"there is no valid key {name[:80]!r}; see `kosmos-rag api-key list -t {self._owner.name}`")

    def _list_keys(self) -> list[ApiKeyInfo]:
        now = datetime.now(UTC)
        return [
            key
            for key in self._api_keys.infos()
            if all(end is None or end > now for end in (key.revoked_at, key.expires_at))
        ]

    def _list_readable(self, principals: Sequence[str], after: Position | None, limit: int) -> list[dict[str, Any]]:
        """Return documents as a reader with these principals gets them from the database."""
        source, collection = after or (None, None)
        values = {
            "tenant_id": self._owner.id,
            "ids": None,
            "after_source": source,
            "after_collection": collection,
            "limit": limit,
        }
        with (
            self._sessions.read(list(dict.fromkeys(principals))) as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            return cursor.execute(statement("readable_documents"), values).fetchall()

    def _list_admitted(self, document_id: uuid.UUID, principals: Sequence[str]) -> list[str]:
        """Return those principals whose reader, with no other one, gets a document from the database."""
        values = {"tenant_id": self._owner.id, "ids": [document_id], "limit": 1}
        values |= dict.fromkeys(("after_source", "after_collection"))
        with self._sessions.read([]) as connection:
            results = []
            for principal in principals:
                reader = {"tenant_id": self._owner.id, "principals": [principal]}
                connection.execute(statement("set_tenant_context"), reader)
                results.append(connection.execute(statement("readable_documents"), values))
            return [name for name, result in zip(principals, results, strict=True) if result.fetchone() is not None]

    def _read_documents(self, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, dict[str, Any]]:
        """Return what decides about documents, by id."""
        with self._sessions.write() as connection, connection.cursor(row_factory=dict_row) as cursor:
            values = {"tenant_id": self._owner.id, "ids": list(ids)}
            return {row["id"]: row for row in cursor.execute(statement("access_of_documents"), values)}

    def _build_grants(
        self, readers: Sequence[tuple[uuid.UUID, Sequence[str]]], documents: Mapping[uuid.UUID, Mapping[str, Any]]
    ) -> Iterator[AccessGrant]:
        keys = self._list_keys()
        searchable = self._find_searchable(documents)
        for document_id, principals in readers:
            if (document := documents.get(document_id)) is None:
                continue  # it was removed meanwhile
            origin = self._origin(document)
            for principal in principals:
                yield AccessGrant(
                    document_id=document_id,
                    source=document["source"],
                    collection=document["collection"],
                    title=document["title"],
                    principal=principal,
                    origin=origin,
                    feed=document["feed"],
                    keys=tuple(key.name for key in keys if principal in (EVERYONE, *key.principals)),
                    searchable=document_id in searchable,
                )

    def _find_searchable(self, documents: Mapping[uuid.UUID, Mapping[str, Any]]) -> frozenset[uuid.UUID]:
        """Return the documents that searches may find, by the condition of searches."""
        collections = {document["collection"] for document in documents.values()}
        requiring = [name for name in sorted(collections) if self._settings_of(name).retrieval.require_approved]
        if not requiring:
            return frozenset(documents)
        condition = require_approved(compile_filter(Filter()), requiring)
        with self._sessions.write() as connection:
            values = {**condition, "tenant_id": self._owner.id, "ids": list(documents)}
            return frozenset(key for (key,) in connection.execute(statement("matching_documents"), values))

    def _origin(self, document: Mapping[str, Any]) -> Literal["list", "department", "feed"]:
        if document["feed"] is not None:
            return "feed"
        access = self._settings_of(document["collection"]).access
        if access.department_from is None:
            return "list"
        plain = SourceDocument(source=document["source"], data=b"", metadata=document["metadata"])
        try:
            derived = apply_access_policy(plain, access).acl
        except IngestionError:
            return "list"
        return "department" if set(derived) == set(document["acl"]) else "list"


def export_csv(grants: Iterable[AccessGrant]) -> str:
    """Return grants as CSV."""
    columns = [field.name for field in fields(AccessGrant)]
    return write_csv(columns, ([_cell(getattr(grant, column)) for column in columns] for grant in grants))


def export_json_lines(grants: Iterable[AccessGrant]) -> str:
    """Return grants as JSON Lines."""
    return "".join(json.dumps(grant.to_dict(), ensure_ascii=False) + "\n" for grant in grants)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(value) if isinstance(value, tuple) else str(value)
