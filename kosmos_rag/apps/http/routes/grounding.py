"""What a question needs of the schema of a database, for agents that write SQL."""

from fastapi import APIRouter

from kosmos_rag.apps.auth.api_keys import ADMIN
from kosmos_rag.apps.http.dependencies import Reader
from kosmos_rag.apps.http.grounding import GroundingRequest, GroundingView
from kosmos_rag.core.extras import needed

router = APIRouter(tags=["schema"])


@router.post("/api/schema/grounding")
@router.post("/v1/schema/grounding")
async def ground(asked: GroundingRequest, caller: Reader) -> GroundingView:
    """Find the tables, columns and joins that a question needs, and write them as a block for a prompt."""
    if asked.explain:
        caller.identity.require(ADMIN)
    needed("dateparser", "rapidfuzz", extra="schema")
    scope = caller.scope(asked.collection)
    result = await caller.run(caller.service.groundings.ask, scope, caller.identity, asked)
    return GroundingView.of(result, explain=asked.explain)
