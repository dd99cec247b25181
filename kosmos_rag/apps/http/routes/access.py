"""Access reviews: who may read a document, and what a reader may read."""

import uuid
from typing import Annotated

from fastapi import APIRouter, Query

from kosmos_rag.apps.http.routes.resources import Cursor, Limit
from kosmos_rag.apps.http.schemas import AccessPage
from kosmos_rag.apps.http.toolkit.dependencies import Administrator
from kosmos_rag.apps.http.toolkit.pagination import decode_cursor, encode_cursor
from kosmos_rag.core.errors import NotFound, RequestError

router = APIRouter()


@router.get("/v1/access", tags=["operations"])
async def access(
    caller: Administrator,
    document_id: Annotated[uuid.UUID | None, Query(description="Who may read this document.")] = None,
    principal: Annotated[
        list[str] | None, Query(description="What a reader with these may read, in addition to `everyone`.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> AccessPage:
    """Review who may read a document, or what a reader may read, and why.

    Give `document_id` or `principal`. The database decides by row-level security.
    """
    if (document_id is None) == (principal is None):
        raise RequestError("give document_id for the readers of a document, or principal for what a reader may read")
    review = caller.tenant().access
    if document_id is not None:
        readers = await caller.run(review.review_document, document_id)
        if readers is None:
            raise NotFound("there is no such document")
        return AccessPage(grants=readers, next=None)
    after = None if cursor is None else decode_cursor(cursor, str, str)
    grants, position = await caller.run(review.review_reader, principal or [], after=after, limit=limit)
    return AccessPage(grants=grants, next=None if position is None else encode_cursor(*position))
