"""Departments of documents, by the settings of their collection."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from kosmos_rag.core.config import RagSettings
from kosmos_rag.core.types import find_department
from kosmos_rag.retrieval.snapshot import PresetOverlay

GENERAL = "general"
"""The department of documents that have none, or none that the reader may know."""

_PREFERENCE = "department_match"


@dataclass(frozen=True, kw_only=True, slots=True)
class DepartmentRule:
    """How a collection determines the department of a document."""

    key: str
    """Key in the metadata, and kind of the principal."""
    by_folder: bool
    departments: tuple[str, ...]
    in_use: bool
    """Whether the collection has departments: it enforces or prefers them."""

    @classmethod
    def from_settings(cls, rag: RagSettings, overlay: PresetOverlay | None = None) -> Self:
        """Return the rule of a collection.

        Args:
            rag: Settings of the collection, or of the process where there is an overlay.
            overlay: What the preset of the collection changes of them.
        """
        access, preference = rag.access.model_dump(), {**rag.signals.get(_PREFERENCE, {})}
        if overlay is not None:
            access |= overlay.access or {}
            preference |= overlay.department_match or {}
        enforced = access["department_from"] is not None
        by_folder = access["department_from"] == "folder" if enforced else bool(preference.get("by_folder"))
        return cls(
            key=access["key"],
            by_folder=by_folder,
            departments=tuple(access["departments"]) if enforced else (),
            in_use=enforced or bool(preference),
        )

    def department(self, metadata: Mapping[str, Any], source: str, principals: Iterable[str]) -> str:
        """Return the department of a document by metadata or folder.

        Otherwise it is the one whose principal lets the reader read, else `general`.

        Args:
            metadata: Of the document.
            source: Of the document.
            principals: Those of its readers that the reader holds.
        """
        name = find_department(metadata, source, key=self.key, by_folder=self.by_folder, departments=self.departments)
        prefix = f"{self.key}:"
        departments = (principal.removeprefix(prefix) for principal in principals if principal.startswith(prefix))
        return name or next(departments, GENERAL)
