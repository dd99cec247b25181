"""Embedding servers of every protocol over real sockets: what is sent, what is refused, what is tried again."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from kosmos_rag.core.config import EmbeddingSettings
from kosmos_rag.core.errors import ConfigError, InputRefused, ModelError, ModelUnavailable
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.models.embedding import server as server_module
from kosmos_rag.models.embedding.server import ServerEmbedder
from kosmos_rag.models.embedding.space import PROBE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.unit.core.recording import RecordingTracer
from tests.unit.models.embedding.embedding_server import DIALECTS, DIMENSIONS, HASHING, KEY, embeds
from tests.unit.models.llm.chat_server import ChatServer, Handler, Reply, drips_body, hangs, hangs_up, returns, running

TEXTS = ["Churn is the share of accounts that leave.", "收入 💥", "The wing has a sweep of thirty degrees."]


@pytest.fixture(params=list(DIALECTS))
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Model = Callable[..., ServerEmbedder]


@pytest.fixture
def model(server: ChatServer) -> Iterator[Model]:
    """A model behind the server that gives these replies."""
    with ExitStack() as stack:

        def build(*replies: Reply, protocol: str = "openai", **settings: Any) -> ServerEmbedder:
            server.replies = list(replies) or [embeds(protocol)]
            values = {
                "model": "m",
                "dimensions": DIMENSIONS,
                "url": server.url(DIALECTS[protocol].base),
                "protocol": protocol,
                "api_key": SecretStr(KEY),
                **settings,
            }
            return stack.enter_context(closing(ServerEmbedder(EmbeddingSettings(**values))))

        yield build


def _texts(server: ChatServer, protocol: str = "openai") -> list[list[str]]:
    """The texts of each request, without the probe sentence."""
    field = DIALECTS[protocol].texts
    return [[text for text in body[field] if text != PROBE] for _, _, body in server.requests]


def test_embed__gives_the_vectors_in_the_order_of_the_texts(model: Model, protocol: str) -> None:
    opened = model(protocol=protocol)
    assert opened.embed(TEXTS) == pytest.approx(HASHING.embed(TEXTS), abs=1e-6)
    assert opened.embed_query(TEXTS[0]) == pytest.approx(HASHING.embed_query(TEXTS[0]), abs=1e-6)
    assert opened.embed([]).shape == (0, DIMENSIONS)
    assert opened.embed(TEXTS).dtype == np.float32


SENT: dict[str, dict[str, Any]] = {
    "openai": {"model": "m", "input": ["a", PROBE], "encoding_format": "float"},
    "vllm": {"model": "m", "input": ["a", PROBE], "encoding_format": "float", "truncate_prompt_tokens": -1},
    "tei": {"inputs": ["a", PROBE], "normalize": True, "truncate": True},
    "ollama": {"model": "m", "input": ["a", PROBE], "truncate": True},
    "cohere": {
        "model": "m",
        "texts": ["a", PROBE],
        "input_type": "search_document",
        "embedding_types": ["float"],
        "truncate": "END",
    },
    "jina": {
        "model": "m",
        "input": ["a", PROBE],
        "task": "retrieval.passage",
        "truncate": True,
        "embedding_type": "float",
    },
    "voyage": {"model": "m", "input": ["a", PROBE], "input_type": "document", "truncation": True},
}
SENT_FOR_QUERIES = {
    "cohere": {"input_type": "search_query"},
    "jina": {"task": "retrieval.query"},
    "voyage": {"input_type": "query"},
}


def test_requests__are_what_the_protocol_has(server: ChatServer, model: Model, protocol: str) -> None:
    opened = model(protocol=protocol)
    opened.embed(["a"])
    opened.embed_query("a")
    (path, headers, passage), (_, _, query) = server.requests
    assert (path, headers["Authorization"]) == (DIALECTS[protocol].path, f"Bearer {KEY}")
    assert passage == SENT[protocol]
    assert query == {**SENT[protocol], **SENT_FOR_QUERIES.get(protocol, {})}


def test_prefixes__are_sent_with_questions_and_passages(server: ChatServer, model: Model) -> None:
    opened = model(query_prefix="query: ", passage_prefix="passage: ")
    opened.embed(["a", ""])
    opened.embed_query("b")
    assert _texts(server) == [["passage: a", "passage:  "], ["query: b"]]
    assert opened.max_tokens == 512 - opened.tokenizer.count(["passage: "])[0]


def test_embed_queries__sends_questions_in_batches(server: ChatServer, model: Model) -> None:
    opened = model(query_prefix="query: ", passage_prefix="passage: ", batch_size=3)
    vectors = opened.embed_queries(TEXTS)
    assert vectors == pytest.approx(HASHING.embed([f"query: {text}" for text in TEXTS]), abs=1e-6)
    assert sorted(map(len, _texts(server))) == [1, 2]
    assert opened.embed_queries([]).shape == (0, DIMENSIONS)


def test_batches__hold_as_many_texts_and_tokens_as_are_set(server: ChatServer, model: Model) -> None:
    texts = [f"word{number % 10} " * (1 + number % 7) for number in range(40)]
    opened = model(batch_size=5, batch_tokens=51, max_tokens=64)
    assert opened.embed([*texts, "w " * 60]) == pytest.approx(HASHING.embed([*texts, "w " * 60]), abs=1e-6)
    batches = sorted(_texts(server), key=lambda batch: texts.index(batch[0]) if batch[0] in texts else 99)
    assert max(map(len, batches)) <= 4
    sizes = [sum(opened.tokenizer.count(batch)) for batch in batches]
    assert sizes[-1] == 60, "one text may be more than a batch"
    assert max(sizes[:-1]) <= 51 - opened.tokenizer.count([PROBE])[0]
    assert min(map(len, batches)) < 4
    server.requests.clear()
    opened.embed(["a"] * 11)
    assert sorted(map(len, _texts(server))) == [3, 4, 4]


@pytest.mark.parametrize("size", [1, 2, 32])
def test_requests__have_no_more_inputs_than_batch_size(server: ChatServer, model: Model, size: int) -> None:
    """Text Embeddings Inference refuses more than 32, which is the default; the probe counts."""
    opened = model(batch_size=size)
    assert opened.embed(["a"] * 64).shape == (64, DIMENSIONS)
    opened.embed_query("b")
    assert max(len(body["input"]) for _, _, body in server.requests) == size
    assert any(PROBE in body["input"] for _, _, body in server.requests) == (size > 1)


def test_requests__are_sent_at_once_up_to_the_limit(model: Model) -> None:
    together, lock, running_now, most = threading.Barrier(2, timeout=10), threading.Lock(), [0], [0]

    def meets_another(handler: Handler) -> None:
        with lock:
            running_now[0] += 1
            most[0] = max(most[0], running_now[0])
        together.wait()
        with lock:
            running_now[0] -= 1
        embeds("openai")(handler)

    model(meets_another, batch_size=2, concurrency=2).embed(["a"] * 12)
    assert most == [2]


def test_text__beyond_the_models_input_is_not_sent(server: ChatServer, model: Model) -> None:
    opened = model(max_tokens=64)
    opened.embed(["word " * 100, "x" * 1000])
    assert _texts(server) == [[("word " * 64).strip(), "x" * 256]]


@pytest.mark.parametrize("mode", ["client", "server"])
def test_matryoshka__truncates_and_normalises_again(server: ChatServer, model: Model, mode: str, protocol: str) -> None:
    opened = model(protocol=protocol, dimensions=48, matryoshka=mode)
    expected = HASHING.embed([PROBE, TEXTS[0]])[:, :48]
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    assert opened.embed([PROBE, TEXTS[0]]) == pytest.approx(expected, abs=1e-6)
    requested = server.requests[0][2].get(DIALECTS[protocol].dimensions)
    assert requested == (48 if mode == "server" else None)


def test_normalize__false_leaves_the_vectors_as_they_come(server: ChatServer, model: Model) -> None:
    opened = model(embeds("tei", lambda texts: 3 * HASHING.embed(texts)), protocol="tei", normalize=False)
    assert np.linalg.norm(opened.embed(TEXTS), axis=1) == pytest.approx(np.full(3, 3), abs=1e-5)
    assert server.requests[0][2]["normalize"] is False


@pytest.mark.parametrize(
    "first",
    [
        returns(429, b"slow down", **{"Retry-After": "0"}),
        returns(500),
        returns(502),
        returns(503),
        returns(504),
        hangs_up,
        returns(200, b'{"data": [', **{"Content-Length": "900"}),
    ],
)
def test_request__is_tried_again_after_what_may_pass(server: ChatServer, model: Model, first: Reply) -> None:
    opened = model(first, first, embeds("openai"))
    assert opened.embed(TEXTS) == pytest.approx(HASHING.embed(TEXTS), abs=1e-6)
    assert len(server.requests) == 3


def _answers(edit: Callable[[list[dict[str, Any]]], object]) -> Reply:
    """Answer as OpenAI does, after a change of `data`."""

    def reply(handler: Handler) -> None:
        rows = enumerate(HASHING.embed(handler.body["input"]).tolist())
        data = [{"index": number, "embedding": vector} for number, vector in rows]
        edited = edit(data)
        handler.send(200, json.dumps({"data": data if edited is None else edited}).encode())

    return reply


def _set(field: str, value: object) -> Reply:
    return _answers(lambda data: data[0].update({field: value}))


SMALLER = embeds("openai", HashingEmbedder(dimensions=48).embed)
NOT_OF_THE_PROTOCOL = r"not of the protocol \(.*\): correct rag\.embedding\.protocol or rag\.embedding\.url"


@pytest.mark.parametrize(
    ("reply", "error", "message", "requests"),
    [
        (returns(401, b"who?"), ModelUnavailable, r"refused the key \(401: who\?\): correct rag\.embedding\.api_k", 1),
        (returns(403), ModelUnavailable, r"refused the key \(403: nothing\)", 1),
        (returns(404, b"pull it"), ModelUnavailable, r"does not have model 'm' \(404: pull it\)", 1),
        (returns(413, b"too long"), InputRefused, r"refused the request \(413: too long\): lower .*max_tokens", 1),
        (returns(422), InputRefused, r"refused the request \(422: nothing\): lower rag\.embedding\.max_tokens", 1),
        (returns(429), ModelUnavailable, r"is busy \(429: nothing\)", 5),
        (returns(429, b"", **{"Retry-After": "3600"}), ModelUnavailable, r"is busy \(429", 1),
        (returns(503), ModelUnavailable, r"is busy \(503: nothing\)", 5),
        (returns(500, b"out of\nmemory"), ModelError, r"failed \(500: out of memory\): look into its log", 5),
        (hangs_up, ModelUnavailable, r"cannot be reached: .*: start it, or correct rag\.embedding\.url", 5),
        (returns(307, Location="/v2"), ModelError, r"failed \(307: nothing\)", 1),
        (returns(200, b"<html>"), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (returns(200, b'{"data": [{"index": 0, "embe'), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (returns(200, b"[" * 100_000), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (returns(200, b"[]"), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (returns(200, b'{"data": null}'), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (_set("index", 1), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (_set("index", "first"), ModelError, NOT_OF_THE_PROTOCOL, 1),
        (_answers(lambda data: data[:-1]), ModelError, "gave 3 vectors for 4 texts: look into its log", 1),
        (_answers(lambda data: []), ModelError, "gave 0 vectors for 4 texts", 1),
        (_set("embedding", "AAAA"), ModelError, r"not lists of numbers: correct rag\.embedding\.protocol", 1),
        (_set("embedding", [1.0]), ModelError, "not lists of numbers", 1),
        (_set("embedding", None), ModelError, "not lists of numbers", 1),
        (_set("embedding", [float("nan")] * DIMENSIONS), ModelError, "gave vectors that are not finite", 1),
        (_set("embedding", [float("inf")] * DIMENSIONS), ModelError, "gave vectors that are not finite", 1),
        (_set("embedding", [10**400] * DIMENSIONS), ModelError, "gave vectors that are not lists of numbers", 1),
        (_set("embedding", [0.0] * DIMENSIONS), ModelError, "gave a vector of length zero", 1),
        (SMALLER, ConfigError, r"dimensions = 64, and model m has 48; set rag\.embedding\.dimensions to 48", 1),
        (returns(200, b"no gzip", **{"Content-Encoding": "gzip"}), ModelError, "sent an unreadable response", 1),
        (returns(200, b" " * 1_300_000), ModelError, "sent more than 1200000 bytes: correct rag.embedding.url", 1),
    ],
)  # fmt: skip
def test_embed__names_what_failed(
    server: ChatServer, model: Model, reply: Reply, error: type[Exception], message: str, requests: int
) -> None:
    with pytest.raises(Exception, match=r"^") as raised:
        model(reply).embed(TEXTS)
    assert re.search(message, str(raised.value))
    assert type(raised.value) is error
    assert str(raised.value).isprintable()
    assert len(server.requests) == requests


@pytest.mark.parametrize("mode", ["none", "server"])
def test_dimensions__that_a_server_does_not_give_name_the_setting(model: Model, mode: str) -> None:
    ignoring = _answers(lambda data: None)
    message = "set rag.embedding.matryoshka to client" if mode == "server" else "set rag.embedding.dimensions to 64"
    with pytest.raises(ConfigError, match=message):
        model(ignoring, dimensions=32, matryoshka=mode).embed(TEXTS)


def test_batches__of_which_one_fails_are_given_up(server: ChatServer, model: Model) -> None:
    first_arrived = threading.Event()

    def refuses_one(handler: Handler) -> None:
        if "poison" in handler.body["input"]:
            first_arrived.wait(10)
            return handler.send(400, b"poison")
        first_arrived.set()
        return hangs(handler)

    with pytest.raises(ModelError, match=r"refused the request \(400: poison\)"):
        model(refuses_one, batch_size=1, concurrency=2).embed(["a", "poison", "b"])
    assert len(server.requests) == 2, "no request is begun after the failure"


@pytest.mark.parametrize("reply", [hangs, drips_body])
def test_question__has_a_deadline_of_its_own(model: Model, reply: Reply) -> None:
    with pytest.raises(ModelUnavailable, match=r"no answer within 0\.2 s: .* or raise rag\.embedding\.query_timeout_s"):
        model(reply, query_timeout_s=0.2).embed_query("a")
    with pytest.raises(ModelUnavailable, match=r"no answer within 0\.2 s: .* or raise rag\.embedding\.timeout_s"):
        model(reply, timeout_s=0.2).embed(["a"])


def test_question__does_not_wait_for_passages(model: Model) -> None:
    event = threading.Event()

    def waits_for_the_question(handler: Handler) -> None:
        if "the question" in handler.body["input"]:
            event.set()
        assert event.wait(10)
        embeds("openai")(handler)

    opened = model(waits_for_the_question, concurrency=1)
    ingesting = threading.Thread(target=lambda: opened.embed(["a"] * 40))
    ingesting.start()
    assert opened.embed_query("the question").shape == (DIMENSIONS,)
    ingesting.join()


class _Other(HashingEmbedder):
    """Another model of the same size."""

    def embed_query(self, question: str) -> np.ndarray:
        return super().embed_query(question[::-1])


def test_model__that_changes_under_its_name_is_noticed(
    server: ChatServer, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = model()
    opened.embed(TEXTS)
    opened.embed_query("a")
    server.replies = [embeds("openai", _Other(dimensions=DIMENSIONS).embed)]
    message = r"has another model under the same name: .* \(cosine -?0\.\d\d\); start the former model"
    with pytest.raises(ModelUnavailable, match=message):
        opened.embed(["text"] * 8)
    opened.embed_query("a")  # the probe is not sent with each question …
    monkeypatch.setattr(server_module, "_PROBE_INTERVAL_S", 0.0)
    with pytest.raises(ModelUnavailable, match=message):  # … but again after a while
        opened.embed_query("a")
    server.replies = [embeds("openai")]
    assert opened.embed(TEXTS) == pytest.approx(HASHING.embed(TEXTS), abs=1e-6)


def test_probe__is_sent_with_many_texts_and_rarely_with_few(server: ChatServer, model: Model) -> None:
    opened = model()
    for texts in (["a"], ["b"], ["c"] * 8):
        opened.embed(texts)
    opened.embed_query("d")
    opened.embed_query("e")
    assert [PROBE in body["input"] for _, _, body in server.requests] == [True, False, True, True, False]


@pytest.mark.parametrize("padding", [0, 180])
def test_errors__never_show_the_key(model: Model, padding: int) -> None:
    output = b"x" * padding + f" wrong key {KEY}".encode()
    for reply in (returns(401, output), returns(400, output), returns(200, output)):
        with pytest.raises(ModelError) as raised:
            model(reply).embed(TEXTS)
        assert "sk-" not in str(raised.value)


def test_redirect__is_not_followed(server: ChatServer, model: Model) -> None:
    """It would take the key and the texts to another server."""
    with running() as other:
        with pytest.raises(ModelError, match="307"):
            model(returns(307, Location=other.url("/v1/embeddings"))).embed(TEXTS)
        assert other.requests == []


def test_address__may_have_a_query(server: ChatServer, model: Model) -> None:
    opened = model(_answers(lambda data: None), url=server.url("/openai/v1/?api-version=2026-01-01"))
    opened.embed(TEXTS)
    assert server.requests[0][0] == "/openai/v1/embeddings?api-version=2026-01-01"


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY} ", f"{KEY}ü"])
def test_key__that_no_header_takes_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=r"rag\.next_embedding\.api_key contains") as raised:
        ServerEmbedder(
            EmbeddingSettings(url="http://127.0.0.1/v1", api_key=SecretStr(key)), section="rag.next_embedding"
        )
    assert "sk-" not in str(raised.value)


def test_model__that_is_closed_gives_up_its_requests(server: ChatServer, model: Model) -> None:
    opened = model(hangs)
    failures: list[BaseException] = []

    def embed() -> None:
        try:
            opened.embed(TEXTS)
        except ModelError as error:
            failures.append(error)

    waiting = threading.Thread(target=embed)
    waiting.start()
    while not server.requests:
        pass
    opened.close()
    waiting.join(10)
    assert "was cancelled" in str(failures[0])
    with pytest.raises(ModelError, match="is closed"):
        opened.embed(TEXTS)


def test_embed__is_a_span_without_texts(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = RecordingTracer()
    monkeypatch.setattr(tracing, "_TRACER", tracer)
    model(protocol="tei").embed(TEXTS)
    (span,) = tracer.spans
    assert span.name == "embeddings m"
    assert span.attributes["gen_ai.provider.name"] == "tei"
    assert span.attributes["server.address"] == "127.0.0.1"
    assert "Churn" not in str(span.attributes)
