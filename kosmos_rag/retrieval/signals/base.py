"""What a signal is: settings of its own and one pure function over passages."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import Field, Strict

from kosmos_rag.core.config.values import Section
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.words import words

Number = Annotated[float, Strict(), Ge(-1000), Le(1000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The question as signals see it."""

    text: str
    principals: tuple[str, ...]
    """What the reader holds: `department:hr` and `role:Manager` name department and role."""
    today: date

    @property
    def words(self) -> frozenset[str]:
        """Its words that carry meaning."""
        return words(self.text)

    def held(self, kind: str) -> frozenset[str]:
        """Return what the reader holds of a kind: of `role`, the names of all roles."""
        prefix = f"{kind}:"
        return frozenset(name.removeprefix(prefix) for name in self.principals if name.startswith(prefix))


class Scoring(Section, ABC):
    """A signal that raises or lowers the score of a passage by `weight` times its value."""

    weight: Number = Field(description="What a value of 1 adds, or adds per unit of the score.")
    how: Literal["add", "multiply"] = Field(default="add", description="Add to the score, or multiply it by 1 + that.")

    @abstractmethod
    def value(self, asked: Asked, passage: Passage) -> float:
        """Return how much the passage has of it: 0 for nothing, 1 for all."""


class Choosing(Section, ABC):
    """A signal that leaves passages out or changes their order."""

    @abstractmethod
    def choose(self, asked: Asked, passages: Sequence[Passage]) -> list[Passage]:
        """Return the passages that stay, best first. They come in best first."""
