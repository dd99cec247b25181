"""Readers of a document by its department: enforcement is theirs alone, by row-level security."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import psycopg

from kosmos_rag.core.config import AccessSettings
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import EVERYONE, SourceDocument, department_of
from kosmos_rag.storage.publish import remove_documents
from kosmos_rag.storage.sql import statement

NO_DEPARTMENT, BAD_DEPARTMENT = "no_department", "bad_department"
"""Codes of failures: nobody knows who may read the document."""


def apply_access_policy(document: SourceDocument, access: AccessSettings) -> SourceDocument:
    """Return the document with the readers that its department gives it; one that names readers keeps those.

    Idempotent. `everyone`, which is what a document has that names none, does not count as named. Raises IngestionError
    where the department is not known: such a document would be everybody's or nobody's.
    """
    if access.department_from is None or document.acl != (EVERYONE,):
        return document
    department = _department(document.source, document.metadata, access)
    if department in access.open:
        return document
    return replace(document, acl=(f"{access.key}:{department}", *(f"role:{role}" for role in access.privileged)))


def _department(source: str, metadata: Mapping[str, Any], access: AccessSettings) -> str:
    known, by_folder = access.departments, access.department_from == "folder"
    department = department_of(metadata, source, key=access.key, by_folder=by_folder, known=known)
    named = metadata.get(access.key)
    if named is not None and (department is None or (known and department not in known)):
        wanted = f"one of {', '.join(known)} (rag.access.departments)" if known else "the name of one department"
        raise IngestionError(
            BAD_DEPARTMENT, f"{access.key} in the metadata of {source} is {str(named)[:60]!r}; give {wanted}"
        )
    if department is None:
        place = f"its metadata have no {access.key!r}"
        place += " and it lies in no folder of rag.access.departments" if by_folder else ""
        raise IngestionError(NO_DEPARTMENT, f"{source} has no department ({place}), so nobody may read it; give it one")
    return department


def remove_unauthorised(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    failed: Mapping[uuid.UUID, str],
    access: AccessSettings,
    *,
    collection: str,
) -> int:
    """Remove what is stored of failed documents, given by id with their codes, that must not stay as it is.

    That is where the department is not known any more, and where everyone may still read what these settings would keep
    from them. In the caller's transaction. Returns how many there were.
    """
    if access.department_from is None or not failed:
        return 0
    values = {"tenant_id": tenant_id, "document_ids": list(failed)}
    rows = connection.execute(statement("acl_of_documents"), values).fetchall()
    gone = [
        key
        for key, source, metadata, readers in rows
        if failed[key] in {NO_DEPARTMENT, BAD_DEPARTMENT} or _open_by_mistake(source, metadata, readers, access)
    ]
    return remove_documents(connection, tenant_id, gone, collection=collection)


def _open_by_mistake(source: str, metadata: Mapping[str, Any], readers: list[str], access: AccessSettings) -> bool:
    try:
        return readers == [EVERYONE] and _department(source, metadata, access) not in access.open
    except IngestionError:
        return True
