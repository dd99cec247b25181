"""Documents of the reader's own department first. A preference: readers of documents are what keeps others out."""

from typing import Literal

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Number
from kosmos_rag.retrieval.signals.departments import OfDepartments


class Signal(OfDepartments):
    """One value for the reader's department, by a principal `department:hr`, and one for all others."""

    weight: Number = 1.0
    how: Literal["add", "multiply"] = "multiply"
    same: Number = Field(default=0.2, description="For documents of the reader's department.")
    other: Number = Field(default=-0.1, description="For those of another.")
    privileged: tuple[str, ...] = Field(default=(), description="Roles, `role:Manager`, to whom all are alike.")

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return 0 where the reader is privileged, or the department of either is not known."""
        own, of_passage = asked.held(self.key), self.department(passage)
        if not own or of_passage is None or asked.held("role").intersection(self.privileged):
            return 0.0
        return self.same if of_passage in own else self.other
