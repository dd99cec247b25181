"""Count chunks by department, in collections with or without departments."""

from collections.abc import Callable, Iterable

from kosmos_rag.core.config import RagSettings
from kosmos_rag.core.types import department_of
from kosmos_rag.storage.documents import FolderTotal

GENERAL = "general"
"""The department of documents that have none, or none that the reader may know."""


def count_departments(totals: Iterable[FolderTotal], settings_of: Callable[[str], RagSettings]) -> dict[str, int]:
    """Count chunks by department. The counts add up to all chunks.

    Args:
        totals: Chunks by key of the department and folder.
        settings_of: Returns the settings of a collection.
    """
    departments: dict[str, int] = {}
    for total in totals:
        name = _department(total, settings_of(total.collection))
        departments[name] = departments.get(name, 0) + total.chunks
    return dict(sorted(departments.items()))


def _department(total: FolderTotal, rag: RagSettings) -> str:
    """Return the department by metadata or folder.

    Otherwise it is the one whose principal the reader has.
    """
    access = rag.access
    by_folder, known = access.department_from == "folder", access.departments
    if access.department_from is None:
        by_folder, known = bool(rag.signals.get("department_match", {}).get("by_folder")), ()
    metadata = {access.key: total.department}
    name = department_of(metadata, f"{total.folder}file", key=access.key, by_folder=by_folder, known=known)
    prefix = f"{access.key}:"
    held = (principal.removeprefix(prefix) for principal in total.principals if principal.startswith(prefix))
    return name or next(held, GENERAL)
