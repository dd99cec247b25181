"""What a reader thinks of what was given out, over the wire."""

import uuid
from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field

from kosmos_rag.records import Feedback, Rating
from kosmos_rag.service.wire.questions import Request


class FeedbackRequest(Request):
    """A rating of a retrieval, by its id, or else of a question; of one passage of it where a chunk is named."""

    rating: Rating
    retrieval_id: uuid.UUID | None = Field(default=None, description="`retrieval_id` of what was answered.")
    question: str | None = Field(default=None, description="What was asked, where there is no retrieval_id.")
    collection: str | None = Field(default=None, description="Where it was asked; else all.")
    chunk_id: uuid.UUID | None = Field(default=None, description="The passage that is meant; else all of it.")
    comment: str | None = Field(default=None, max_length=2000)


class FeedbackView(BaseModel):
    """A rating as it is kept. Another one of the same by the same subject takes its place."""

    id: uuid.UUID
    at: datetime
    subject: str
    collection: str | None
    retrieval_id: uuid.UUID | None
    question: str | None
    question_sha256: str
    rating: Rating
    chunk_id: uuid.UUID | None
    source: str | None
    comment: str | None

    @classmethod
    def of(cls, kept: Feedback) -> Self:
        """Tell of a rating."""
        return cls(**{name: getattr(kept, name) for name in cls.model_fields})
