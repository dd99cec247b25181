"""Access policy of documents: the principals of a department.

PostgreSQL enforces it by row-level security.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import psycopg

from kosmos_rag.core.config import AccessSettings
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import EVERYONE, SourceDocument, find_department
from kosmos_rag.storage.sql import statement

NO_DEPARTMENT, BAD_DEPARTMENT = "no_department", "bad_department"
"""Error codes: it is not known who may read the document."""


def apply_access_policy(document: SourceDocument, access: AccessSettings) -> SourceDocument:
    """Return the document with the acl of its department.

    A document with an acl of its own keeps that. Idempotent. The default acl, `everyone`, is not one of its own. Raises
    IngestionError where the department is not known: such a document would be readable by everyone or by no one.
    """
    if access.department_from is None or document.acl != (EVERYONE,):
        return document
    department = _department(document.source, document.metadata, access)
    if department in access.open:
        return document
    return replace(document, acl=(f"{access.key}:{department}", *(f"role:{role}" for role in access.privileged)))


def _department(source: str, metadata: Mapping[str, Any], access: AccessSettings) -> str:
    departments, by_folder = access.departments, access.department_from == "folder"
    department = find_department(metadata, source, key=access.key, by_folder=by_folder, departments=departments)
    value = metadata.get(access.key)
    if value is not None and (department is None or (departments and department not in departments)):
        expected = (
            f"one of {', '.join(departments)} (rag.access.departments)" if departments else "the name of one department"
        )
        raise IngestionError(
            BAD_DEPARTMENT, f"{access.key} in the metadata of {source} is {str(value)[:60]!r}; give {expected}"
        )
    if department is None:
        reason = f"its metadata have no {access.key!r}"
        reason += " and it is in no folder of rag.access.departments" if by_folder else ""
        raise IngestionError(
            NO_DEPARTMENT, f"{source} has no department ({reason}), so nobody may read it; give it one"
        )
    return department


def find_unauthorised(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    error_codes: Mapping[uuid.UUID, str],
    access: AccessSettings,
) -> list[uuid.UUID]:
    """Return the failed documents whose stored versions have too open an acl.

    They are to be removed. A version has one if the department of its document is no longer known, and if
    everyone may read what these settings would restrict.

    Args:
        connection: within a transaction of the tenant.
        error_codes: error code of each failed document, by id.
        access: settings of the collection; without `department_from` there are none.
    """
    if access.department_from is None or not error_codes:
        return []
    values = {"tenant_id": tenant_id, "document_ids": list(error_codes)}
    rows = connection.execute(statement("acl_of_documents"), values).fetchall()
    return [
        key
        for key, source, metadata, acl in rows
        if error_codes[key] in {NO_DEPARTMENT, BAD_DEPARTMENT} or _open_by_mistake(source, metadata, acl, access)
    ]


def _open_by_mistake(source: str, metadata: Mapping[str, Any], acl: list[str], access: AccessSettings) -> bool:
    try:
        return acl == [EVERYONE] and _department(source, metadata, access) not in access.open
    except IngestionError:
        return True
