"""Bodies and parameters of requests in OpenAI's interface."""

import re
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, model_validator

from kosmos_rag.apps.http.toolkit.bodies import RequestBody
from kosmos_rag.core.errors import NotFound
from kosmos_rag.core.types import is_text

MAX_BATCH = 2000
_ID = re.compile(r"(?:file-|vsfb_)?([0-9a-f]{32})")


def _storable(text: str) -> str:
    if not is_text(text):
        raise ValueError("remove NUL and lone surrogates")
    return text


Key = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_storable)]
Text = Annotated[str, Field(max_length=512), AfterValidator(_storable)]
Metadata = Annotated[dict[Key, Text], Field(max_length=16)]
Number = StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]
Attributes = Annotated[dict[Key, StrictBool | Number | Text], Field(max_length=16)]
FileId = Annotated[str, Field(max_length=100, examples=["file-0b5fd2a13d0e5d5e8b1c5f0a3f7f6a10"])]
Name = Annotated[str, Field(max_length=256), AfterValidator(_storable)]

Cursor = Annotated[str | None, Query(max_length=100, description="Id of an entry of the list.")]
Order = Annotated[Literal["asc", "desc"], Query(description="By time of creation.")]
_Limit = Annotated[int, Query(ge=1, le=100, description="Page size.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class PageQuery:
    """The query parameters of a page of a list."""

    after: Cursor = None
    before: Cursor = None
    limit: _Limit = 20
    order: Order = "desc"


Paging = Annotated[PageQuery, Depends()]
"""The page that a request asks for."""


class AutoChunking(RequestBody):
    """The chunking of the collection."""

    type: Literal["auto", "other"]


def _refuse_sizes(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") == "static":
        raise ValueError(
            "sizes of chunks are a setting of the collection here (rag.chunking, or its preset); send "
            '{"type": "auto"}, or leave it out'
        )
    return value


Chunking = Annotated[AutoChunking | None, BeforeValidator(_refuse_sizes), Field(description="Only `auto`.")]


def _refuse_expiry(value: Any) -> None:
    if value is not None:
        raise ValueError("vector stores do not expire here; leave it out, and delete the vector store when it is due")


Expiry = Annotated[None, BeforeValidator(_refuse_expiry)]


class Attachment(RequestBody):
    """A stored file with attributes."""

    file_id: FileId
    attributes: Attributes | None = None
    chunking_strategy: Chunking = None


class VectorStoreChanges(RequestBody):
    """New values of a vector store."""

    name: Name | None = None
    description: Name | None = None
    metadata: Metadata | None = None
    expires_after: Expiry = Field(default=None, description="Vector stores do not expire here.")


class VectorStoreRequest(VectorStoreChanges):
    """A vector store to create."""

    file_ids: Annotated[list[FileId], Field(max_length=MAX_BATCH)] | None = None
    chunking_strategy: Chunking = None


class AttributesRequest(RequestBody):
    """New attributes of a file; they replace all."""

    attributes: Attributes | None


class FileBatchRequest(RequestBody):
    """Files to attach: ids with common attributes, or files with their own."""

    file_ids: Annotated[list[FileId], Field(max_length=MAX_BATCH)] | None = None
    files: Annotated[list[Attachment], Field(max_length=MAX_BATCH)] | None = None
    attributes: Attributes | None = None
    chunking_strategy: Chunking = None

    @model_validator(mode="after")
    def _require_one(self) -> "FileBatchRequest":
        if bool(self.file_ids) == bool(self.files):
            raise ValueError("give file_ids, or files with attributes of their own; one of them, not empty")
        return self

    def attachments(self) -> list[Attachment]:
        """Return the files with their attributes."""
        if self.files:
            return self.files
        return [Attachment(file_id=file_id, attributes=self.attributes) for file_id in self.file_ids or ()]


def parse_id(text: str) -> uuid.UUID:
    """Return the id of a file or a batch.

    Raises NotFound for a text that is none.
    """
    if match := _ID.fullmatch(text):
        return uuid.UUID(match[1])
    raise NotFound(f"there is no {text[:60]!r}, or none that you may see")
