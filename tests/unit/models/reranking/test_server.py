"""Reranking servers of every protocol over real sockets."""

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from pydantic import SecretStr

from kosmos_rag.core.config import RerankingSettings
from kosmos_rag.core.errors import InputRefused, ModelError, ModelUnavailable
from kosmos_rag.models.reranking.server import ServerReranker
from tests.unit.models.llm.chat_server import ChatServer, Handler, Reply, hangs, hangs_up, returns

KEY = "sk-secret-0123456789"
QUESTION = "How much notice does a customer give?"
PASSAGES = ["Ninety days of notice.", "", "The wing has a sweep.", "A customer gives notice of thirty days."]
SCORES = [0.7, 0.0, 0.25, 1.0]

BODY = {"model": "m", "query": QUESTION}
TEXTS = [passage or " " for passage in PASSAGES]
SENT: dict[str, tuple[str, dict[str, Any]]] = {
    "jina": ("/v1/rerank", {**BODY, "documents": TEXTS, "top_n": 4, "return_documents": False}),
    "vllm": ("/v1/rerank", {**BODY, "documents": TEXTS, "top_n": 4, "truncate_prompt_tokens": -1}),
    "cohere": ("/v2/rerank", {**BODY, "documents": TEXTS, "top_n": 4, "max_tokens_per_doc": 512}),
    "voyage": ("/v1/rerank", {**BODY, "documents": TEXTS, "top_k": 4, "return_documents": False, "truncation": True}),
    "tei": ("/rerank", {"query": QUESTION, "texts": TEXTS, "raw_scores": False, "truncate": True}),
}
"""Path and body of a request, by the documentation of each protocol."""


def _response(path: str, body: dict[str, Any], scores: list[float]) -> object:
    """The best first, as all of them answer."""
    ordering = sorted(enumerate(scores), key=lambda pair: -pair[1])
    if "texts" in body:
        return [{"index": index, "score": score} for index, score in ordering]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": score} for index, score in ordering]
    if "top_k" in body:
        return {"object": "list", "data": results, "model": "m", "usage": {"total_tokens": 9}}
    for result in results:
        result["document"] = {"text": "vLLM always returns it"}
    return {"id": "1", "model": "m", "usage": {"total_tokens": 9}, "results": results}


def ranks(scores: list[float]) -> Reply:
    """Answer by the protocol of the request."""

    def reply(handler: Handler) -> None:
        if handler.headers["Authorization"] != f"Bearer {KEY}":
            return handler.send(401, b'{"message": "invalid api token"}')
        return handler.send(200, json.dumps(_response(handler.path, handler.body, scores)).encode())

    return reply


Model = Callable[..., ServerReranker]


@pytest.fixture
def model(server: ChatServer) -> Iterator[Model]:
    """A model behind the server that gives these replies."""
    with ExitStack() as stack:

        def build(*replies: Reply, protocol: str = "jina", **settings: Any) -> ServerReranker:
            server.replies = list(replies) or [ranks(SCORES)]
            base = SENT[protocol][0].removesuffix("/rerank")
            values = {
                "model": "m",
                "url": server.url(base),
                "protocol": protocol,
                "api_key": SecretStr(KEY),
                **settings,
            }
            return stack.enter_context(closing(ServerReranker(RerankingSettings(**values))))

        yield build


@pytest.mark.parametrize("protocol", list(SENT))
def test_score__is_in_the_order_of_the_passages(server: ChatServer, model: Model, protocol: str) -> None:
    opened = model(protocol=protocol)
    assert opened.score(QUESTION, PASSAGES) == SCORES
    assert opened.score(QUESTION, []) == []
    assert [(path, body) for path, _, body in server.requests] == [SENT[protocol]]


@pytest.mark.parametrize("protocol", ["jina", "tei"])
def test_raw_scores__become_probabilities(server: ChatServer, model: Model, protocol: str) -> None:
    raw = [-8.0, 0.0, 3.5, 800.0]
    scores = model(ranks(raw), protocol=protocol, raw_scores=True).score(QUESTION, PASSAGES)
    assert scores == pytest.approx([1 / (1 + math.exp(-score)) for score in raw])
    assert server.requests[0][2].get("raw_scores") == (True if protocol == "tei" else None)


NOT_OF_THE_PROTOCOL = r"not of the protocol \(.*\): correct rag\.reranking\.protocol or rag\.reranking\.url"


@pytest.mark.parametrize(
    ("reply", "error", "message", "requests"),
    [
        (returns(401, b"who?"), ModelUnavailable, r"refused the key \(401: who\?\): correct rag\.reranking\.api_k", 1),
        (returns(404), ModelUnavailable, r"does not have model 'm' .* rag\.reranking\.url", 1),
        (returns(413), InputRefused, r"refused the request \(413: nothing\): lower rag\.reranking\.batch_size", 1),
        (returns(429), ModelUnavailable, "is busy", 5),
        (returns(429, b"", **{"Retry-After": "60"}), ModelUnavailable, "is busy", 1),
        (returns(500), ModelError, r"failed \(500: nothing\)", 5),
        (hangs_up, ModelUnavailable, r"cannot be reached: .* correct rag\.reranking\.url", 5),
        (returns(200, b'{"results": [{"ind'), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (returns(200, b'{"data": []}'), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (returns(200, b'{"results": [{"index": 0, "relevance_score": "high"}]}'), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (ranks(SCORES[:3]), ModelError, "gave 3 scores for 4 passages", 1),
        (ranks([*SCORES, 0.1]), ModelError, "gave 5 scores for 4 passages", 1),
        (ranks([float("nan")] * 4), ModelError, "gave scores that are not finite", 1),
        (ranks([-8.0, 0.0, 0.5, 3.5]), ModelError, "from -8 to 3.5, and they must be 0 to 1: set .*raw_scores", 1),
    ],
)  # fmt: skip
def test_score__names_what_failed(
    server: ChatServer, model: Model, reply: Reply, error: type[ModelError], message: str, requests: int
) -> None:
    with pytest.raises(ModelError) as raised:
        model(reply).score(QUESTION, PASSAGES)
    assert re.search(message, str(raised.value))
    assert type(raised.value) is error
    assert len(server.requests) == requests


def test_score__has_a_deadline(model: Model) -> None:
    with pytest.raises(ModelUnavailable, match=r"no answer within 0\.2 s: .* raise rag\.reranking\.timeout_s"):
        model(hangs, timeout_s=0.2).score(QUESTION, PASSAGES)


def test_batches__are_small_here_and_large_for_a_server() -> None:
    assert RerankingSettings().passages_per_batch == 4
    assert RerankingSettings(url="http://localhost:8080").passages_per_batch == 32
    assert RerankingSettings(url="http://localhost:8080", batch_size=7).passages_per_batch == 7
