"""Routes of schema grounding, for agents that write SQL."""

from fastapi import APIRouter

from kosmos_rag.apps.auth.api_keys import ADMIN
from kosmos_rag.apps.http.concurrency import SEARCH, question_cost
from kosmos_rag.apps.http.dependencies import Reader
from kosmos_rag.apps.http.grounding import GroundingRequest, GroundingView
from kosmos_rag.core.extras import needed

router = APIRouter(tags=["schema"])


@router.post("/v1/schema/grounding")
async def ground(query: GroundingRequest, caller: Reader) -> GroundingView:
    """Find the tables, columns and joins that a question needs."""
    if query.explain:
        caller.identity.require(ADMIN)
    needed("dateparser", "rapidfuzz", extra="schema")
    tenant = caller.tenant(query.collection)
    cost = question_cost(SEARCH, query.question)
    result = await caller.run_at_cost(cost, caller.service.groundings.search, tenant, caller.identity, query)
    return GroundingView.from_record(result, explain=query.explain)
