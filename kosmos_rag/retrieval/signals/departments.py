"""Which department a passage is of."""

from pydantic import Field

from kosmos_rag.core.config.values import Switch
from kosmos_rag.core.types import Passage, department_of
from kosmos_rag.retrieval.signals.base import Scoring


class OfDepartments(Scoring):
    """A signal that goes by the department of a document."""

    key: str = Field(default="department", description="Key of the metadata, and kind of the principal.")
    by_folder: Switch = Field(
        default=False, description="Take the folder that the file lies in, where the metadata does not say."
    )

    def department(self, passage: Passage) -> str | None:
        """Return the department of a passage's document; None where it is not known."""
        return department_of(passage.metadata, passage.source, key=self.key, by_folder=self.by_folder)
