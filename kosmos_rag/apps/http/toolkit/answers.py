"""Start an answer for a caller, within the limits of the service."""

from collections.abc import Mapping
from typing import Any

from kosmos_rag.apps.http.toolkit.concurrency import ANSWER, question_cost
from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.apps.http.toolkit.streaming import AnswerEventStream
from kosmos_rag.engine.answers import split_question
from kosmos_rag.engine.tenant import Tenant


async def start_answer(
    caller: Caller, collection: str | None, question: str, options: Mapping[str, Any]
) -> AnswerEventStream:
    """Start an answer from a collection.

    Args:
        collection: name of the collection; None for the default one.
        options: further arguments of `Tenant.stream_answer`.
    """
    return await stream_answer(caller, caller.scope(collection), question, options)


async def stream_answer(caller: Caller, scope: Tenant, question: str, options: Mapping[str, Any]) -> AnswerEventStream:
    """Search for an answer's sources and start its stream.

    Only the search and the scores of its evidence hold slots, because a language model may write for long.
    Raises Overloaded.

    Args:
        scope: the collection, or the tenant with all of them.
        options: further arguments of `Tenant.stream_answer`.
    """
    streams, tenant = caller.service.streams, caller.identity.tenant
    cost = question_cost(ANSWER, split_question(question), k=options.get("k"), max_tokens=options.get("max_tokens"))
    streams.reserve(tenant)
    try:
        stream = await caller.run_at_cost(cost, scope.stream_answer, question, **options)
    except BaseException:
        streams.release(tenant)
        raise
    return streams.start(stream, tenant)
