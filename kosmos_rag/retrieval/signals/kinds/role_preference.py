"""Departments that a role prefers."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Number
from kosmos_rag.retrieval.signals.departments import OfDepartments


class Signal(OfDepartments):
    """A bonus for documents of the departments that are listed for one of the reader's roles."""

    weight: Number = 0.15
    how: Literal["add", "multiply"] = "multiply"
    roles: Mapping[str, tuple[str, ...]] = Field(description="Departments by role: `SecurityAnalyst: [security, it]`.")

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return 1 for a department that one of the roles prefers."""
        department = self.department(passage)
        return float(any(department in self.roles.get(role, ()) for role in asked.held("role")))
