"""Routes of schema grounding, queries, and questions about databases."""

from fastapi import APIRouter

from kosmos_rag.apps.auth.api_keys import ADMIN
from kosmos_rag.apps.http.concurrency import ANSWER, SEARCH, question_cost
from kosmos_rag.apps.http.dependencies import Reader, Writer
from kosmos_rag.apps.http.grounding import (
    DatabaseQuestion,
    ExampleRequest,
    ExamplesView,
    ExampleView,
    GroundingRequest,
    GroundingView,
    QueryRequest,
    QueryView,
    SqlAnswerView,
)
from kosmos_rag.core.extras import require_extra

router = APIRouter(tags=["schema"])


@router.post("/v1/schema/grounding")
async def ground(query: GroundingRequest, caller: Reader) -> GroundingView:
    """Find the tables, columns and joins that a question needs."""
    if query.explain:
        caller.identity.require(ADMIN)
    require_extra("schema", "schema linking", "dateparser", "rapidfuzz")
    tenant = caller.tenant(query.collection)
    cost = question_cost(SEARCH, query.question)
    result = await caller.run_at_cost(cost, caller.service.groundings.search, tenant, caller.identity, query)
    return GroundingView.from_record(result, explain=query.explain)


@router.post("/v1/schema/query")
async def query(body: QueryRequest, caller: Reader) -> QueryView:
    """Run one SELECT on a described database, if `text2sql.databases` enables it."""
    require_extra("schema", "reading SQL", "sqlglot")
    tenant = caller.tenant(body.collection)
    result = await caller.run(caller.service.groundings.query, tenant, caller.identity, body)
    return QueryView.from_record(result)


@router.post("/v1/schema/examples", status_code=201)
async def add_example(body: ExampleRequest, caller: Writer) -> ExampleView:
    """Accept a query for a question; it replaces the question's earlier one.

    Grounding shows it for similar questions. It is deleted like any document.
    """
    require_extra("schema", "reading SQL", "sqlglot")
    tenant = caller.tenant(body.collection)
    return await caller.run(caller.service.groundings.add_example, tenant, caller.identity, body)


@router.get("/v1/schema/examples")
async def list_examples(caller: Reader, collection: str = "schema") -> ExamplesView:
    """List the accepted queries that you may read."""
    tenant = caller.tenant(collection)
    return await caller.run(caller.service.groundings.examples, tenant, caller.identity, collection)


@router.post("/v1/schema/ask")
async def ask(body: DatabaseQuestion, caller: Reader) -> SqlAnswerView:
    """Answer a question with rows.

    The language model writes the query. A refused query is repaired once.
    """
    require_extra("schema", "schema linking", "dateparser", "rapidfuzz", "sqlglot")
    tenant = caller.tenant(body.collection)
    cost = question_cost(ANSWER, body.question)
    answer = await caller.run_at_cost(cost, caller.service.groundings.answer, tenant, caller.identity, body)
    return SqlAnswerView.from_record(answer)
