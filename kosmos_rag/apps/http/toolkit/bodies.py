"""What JSON bodies of several routes have in common."""

import uuid
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kosmos_rag.core.types import Turn

QUESTION = "How many days of annual leave do employees get?"

Question = Annotated[str, Field(min_length=1, examples=[QUESTION])]


PassageNumber = Annotated[int, Field(ge=1, le=999_999)]


class RequestBody(BaseModel):
    """A JSON body; unknown members are refused."""

    model_config = ConfigDict(extra="forbid")


class TurnRequest(RequestBody):
    """A previous question of the conversation, and its answer."""

    question: str
    answer: str
    search_query: Annotated[str | None, Field(description="`search_query` of the answer.")] = None
    passages: Annotated[
        dict[PassageNumber, Annotated[tuple[uuid.UUID, ...], Field(max_length=100)]],
        Field(
            max_length=200, description="`chunk_ids` of each of `context.passages` of the answer by `citation.index`."
        ),
    ] = {}


History = Annotated[
    list[TurnRequest], Field(max_length=100, description="The conversation so far, the latest turn last.")
]


def to_turns(history: list[TurnRequest]) -> list[Turn]:
    """Convert a conversation to records of the library."""
    return [
        Turn(
            question=turn.question,
            answer=turn.answer,
            search_query=turn.search_query,
            passages=turn.passages,
        )
        for turn in history
    ]
