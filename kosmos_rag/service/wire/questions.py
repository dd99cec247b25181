"""Questions as they may be asked."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kosmos_rag.records import Filter, Turn

_QUESTION = "How many days of annual leave do employees get?"


class Request(BaseModel):
    """A body that names nothing unknown."""

    model_config = ConfigDict(extra="forbid")


class Asked(Request):
    """A question, and which documents may answer it."""

    question: Annotated[str, Field(min_length=1, examples=[_QUESTION])]
    k: Annotated[int, Field(ge=1, le=1000)] | None = Field(default=None, description="How many hits; else as set.")
    collection: str | None = Field(default=None, description="Only this collection; else all.", examples=["handbook"])
    sources: list[str] = Field(default=[], description="Only these sources, or folders of sources.")
    where: dict[str, Any] = Field(
        default={}, description="Conditions on fields, docs/filters.md.", examples=[{"metadata.year": {"$gte": 2024}}]
    )

    @property
    def filter(self) -> Filter | None:
        """The filter that the library takes."""
        return Filter(sources=tuple(self.sources), where=self.where) if self.sources or self.where else None


class SearchRequest(Asked):
    """What to search for."""

    explain: bool = Field(default=False, description="Tell how each hit came to its rank; needs the scope admin.")


class ContextRequest(Asked):
    """What to gather evidence for."""

    max_tokens: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Budget; else as set.")


class TurnView(Request):
    """A question of the conversation before, and its answer."""

    question: str
    answer: str


class AnswerRequest(ContextRequest):
    """What to answer."""

    history: list[TurnView] = Field(default=[], max_length=100, description="The conversation before, last turn last.")

    @property
    def turns(self) -> list[Turn]:
        """The conversation as the library takes it."""
        return [Turn(question=turn.question, answer=turn.answer) for turn in self.history]


class ChatRequest(Request):
    """A question to the assistant."""

    query: Annotated[str, Field(min_length=1, examples=[_QUESTION])]
    model: str | None = Field(
        default=None, description="Who is to write; the service has one writer, and says so where another is named."
    )
    collection: str | None = None
    history: list[TurnView] = Field(default=[], max_length=100)

    @property
    def turns(self) -> list[Turn]:
        """The conversation as the library takes it."""
        return [Turn(question=turn.question, answer=turn.answer) for turn in self.history]
