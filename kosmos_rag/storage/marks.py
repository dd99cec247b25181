"""Marks of documents: what their source said of their state when they were last looked at.

A source that lists an equal mark need not be read to know that the document is unchanged.
"""

import uuid
from collections.abc import Collection, Mapping

import psycopg

from kosmos_rag.storage import corpus
from kosmos_rag.storage.sql import statement


def marks(
    connection: psycopg.Connection, tenant_id: uuid.UUID, document_ids: Collection[uuid.UUID]
) -> dict[str, str | None]:
    """Return the marks of those of the documents that are stored, by source; None for one that was given none."""
    values = {"tenant_id": tenant_id, "document_ids": list(document_ids)}
    return dict(connection.execute(statement("marks"), values).fetchall())


def touch_marks(
    connection: psycopg.Connection, tenant_id: uuid.UUID, changed: Mapping[uuid.UUID, str], *, collection: str
) -> None:
    """Set the marks of documents whose content was found unchanged; what is not stored is passed over."""
    scope = {"tenant_id": tenant_id, "collection": collection}
    # As every writer of several documents does: two of them would lock rows in orders of their own.
    corpus.lock(connection, scope)
    values = {"document_ids": list(changed), "marks": list(changed.values())}
    connection.execute(statement("touch_marks"), {**scope, **values})
