"""Count chunks by department, in collections with or without departments."""

from collections.abc import Callable, Iterable

from kosmos_rag.core.config import RagSettings
from kosmos_rag.retrieval.departments import DepartmentRule
from kosmos_rag.storage.readable_documents import FolderTotal


def count_departments(totals: Iterable[FolderTotal], settings_of: Callable[[str], RagSettings]) -> dict[str, int]:
    """Count chunks by department. The counts add up to all chunks.

    Args:
        totals: Chunks by key of the department and folder.
        settings_of: Returns the settings of a collection.
    """
    departments: dict[str, int] = {}
    for total in totals:
        rule = DepartmentRule.from_settings(settings_of(total.collection))
        name = rule.department({rule.key: total.department}, f"{total.folder}file", total.principals)
        departments[name] = departments.get(name, 0) + total.chunks
    return dict(sorted(departments.items()))
