"""Base classes of signals: settings and one pure function over passages."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import Field, Strict

from kosmos_rag.core.section import Section
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.words import word_prefixes

Number = Annotated[float, Strict(), Ge(-1000), Le(1000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryContext:
    """The query as signals see it."""

    text: str
    principals: tuple[str, ...]
    """Principals of the reader: `department:hr` and `role:Manager` name department and role."""
    today: date

    @property
    def words(self) -> frozenset[str]:
        """Words of the text, without stop words."""
        return word_prefixes(self.text)

    def principals_of_kind(self, kind: str) -> frozenset[str]:
        """Return the names of the reader's principals of a kind.

        For `role`, all roles.
        """
        prefix = f"{kind}:"
        return frozenset(name.removeprefix(prefix) for name in self.principals if name.startswith(prefix))


class ScoreSignal(Section, ABC):
    """A signal that adds `weight` times its value to a score."""

    weight: Number = Field(description="What a value of 1 adds, or adds per unit of the score.")
    how: Literal["add", "multiply"] = Field(default="add", description="Add to the score, or multiply it by 1 + that.")

    @abstractmethod
    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return the strength of the signal, usually 0 to 1."""


class SelectionSignal(Section, ABC):
    """A signal that drops passages or changes their order."""

    @abstractmethod
    def select(self, query: QueryContext, passages: Sequence[Passage]) -> list[Passage]:
        """Return the passages to keep, best first. The input is best first."""
