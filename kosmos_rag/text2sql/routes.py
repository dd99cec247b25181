"""Routes of schema grounding, queries, and questions about databases."""

from http import HTTPStatus

from fastapi import APIRouter

from kosmos_rag.apps.http.toolkit.concurrency import ANSWER, SEARCH, question_cost
from kosmos_rag.apps.http.toolkit.dependencies import Caller, Reader, Writer
from kosmos_rag.apps.http.toolkit.wing import HttpWing
from kosmos_rag.core.extras import require_extra
from kosmos_rag.engine.api_keys import ADMIN
from kosmos_rag.text2sql.bodies import DatabaseQuery, DatabaseQuestion, ExampleRequest, GroundingRequest
from kosmos_rag.text2sql.grounding_cache import GroundingCache
from kosmos_rag.text2sql.openapi_examples import EXAMPLES
from kosmos_rag.text2sql.records import Grounding, QueryExample, QueryExamples, QueryResult, SqlAnswer

router = APIRouter(tags=["schema"])


def _groundings(caller: Caller) -> GroundingCache:
    return caller.service.shared.get(GroundingCache)


@router.post("/v1/schema/grounding")
async def ground(query: GroundingRequest, caller: Reader) -> Grounding:
    """Find the tables, columns and joins that a question needs."""
    if query.explain:
        caller.identity.require(ADMIN)
    require_extra("schema", "schema linking", "rapidfuzz")
    tenant = caller.tenant(query.collection)
    cost = question_cost(SEARCH, query.question)
    result = await caller.run_at_cost(cost, _groundings(caller).search, tenant, caller.identity, query)
    return result.to_record(explain=query.explain)


@router.post("/v1/schema/query")
async def query(body: DatabaseQuery, caller: Reader) -> QueryResult:
    """Run one SELECT on a described database, if `text2sql.databases` enables it."""
    require_extra("schema", "reading SQL", "sqlglot")
    tenant = caller.tenant(body.collection)
    return await caller.run(_groundings(caller).query, tenant, caller.identity, body)


@router.post("/v1/schema/examples", status_code=201)
async def add_example(body: ExampleRequest, caller: Writer) -> QueryExample:
    """Accept a query for a question; it replaces the question's earlier one.

    Grounding shows it for similar questions. It is deleted like any document.
    """
    require_extra("schema", "reading SQL", "sqlglot")
    tenant = caller.tenant(body.collection)
    return await caller.run(_groundings(caller).add_example, tenant, caller.identity, body)


@router.get("/v1/schema/examples")
async def list_examples(caller: Reader, collection: str = "schema") -> QueryExamples:
    """List the accepted queries that you may read."""
    tenant = caller.tenant(collection)
    return await caller.run(_groundings(caller).examples, tenant, caller.identity, collection)


@router.post("/v1/schema/ask")
async def ask(body: DatabaseQuestion, caller: Reader) -> SqlAnswer:
    """Answer a question with rows.

    The language model writes the query. A refused query is repaired once.
    """
    require_extra("schema", "schema linking", "rapidfuzz", "sqlglot")
    tenant = caller.tenant(body.collection)
    cost = question_cost(ANSWER, body.question)
    return await caller.run_at_cost(cost, _groundings(caller).answer, tenant, caller.identity, body)


@router.post("/api/schema/grounding", name="ground")
async def ground_by_first_path(query: GroundingRequest, caller: Reader) -> Grounding:
    """Find the tables, columns and joins that a question needs, as `/v1/schema/grounding`."""
    return await ground(query, caller)


HTTP = HttpWing(
    routers=(router,),
    examples=EXAMPLES,
    statuses={
        "/v1/schema/grounding": (HTTPStatus.BAD_GATEWAY,),
        "/v1/schema/query": (HTTPStatus.NOT_FOUND,),
        "/v1/schema/examples": (HTTPStatus.BAD_GATEWAY,),
        "/v1/schema/ask": (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_GATEWAY),
        "/api/schema/grounding": (HTTPStatus.BAD_GATEWAY,),
    },
)
