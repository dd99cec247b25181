"""Introductions, which match every question and answer none: give it a negative weight."""

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Scoring
from kosmos_rag.retrieval.signals.words import words


class Signal(Scoring):
    """A section that introduces the document, by its heading or as the document's own beginning."""

    titles: tuple[str, ...] = Field(
        default=("introduction", "intro", "overview", "purpose", "preface", "background", "scope"),
        description="Headings with any of the words of these introduce.",
    )

    def value(self, asked: Asked, passage: Passage) -> float:  # noqa: ARG002
        """Return 1 for an introduction."""
        begins = passage.chunk_index == 0 and len(passage.section) <= 1
        heading = passage.section[-1] if passage.section else ""
        return 1.0 if begins or words(heading) & words(" ".join(self.titles)) else 0.0
