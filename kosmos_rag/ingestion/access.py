"""Readers of a document by its department: enforcement is theirs alone, by row-level security."""

from dataclasses import replace

from kosmos_rag.config import AccessSettings
from kosmos_rag.errors import IngestionError
from kosmos_rag.records import EVERYONE, SourceDocument, department_of


def governed(document: SourceDocument, access: AccessSettings) -> SourceDocument:
    """Return the document with the readers that its department gives it; one that names readers keeps those.

    Idempotent. `everyone`, which is what a document has that names none, does not count as named. Raises IngestionError
    where the department is not known: such a document would be everybody's or nobody's.
    """
    if access.by is None or document.readers != (EVERYONE,):
        return document
    department = department_of(document.metadata, document.source, key=access.key, by_folder=access.by == "folder")
    if department is None:
        place = f"its metadata have no {access.key!r}" + (" and it lies in no folder" if access.by == "folder" else "")
        raise IngestionError(
            "no_department", f"{document.source} has no department ({place}), so nobody may read it; give it one"
        )
    if department in access.open:
        return document
    return replace(
        document, readers=(f"{access.key}:{department}", *(f"role:{role}" for role in sorted(set(access.privileged))))
    )
