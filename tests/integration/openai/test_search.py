"""Search, embeddings and models through the official SDK and LiteLLM's client."""

import json
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from kosmos_rag import SourceDocument
from kosmos_rag.apps.http.toolkit.rate_limit import RateLimiter
from kosmos_rag.openai.search import score_hits
from tests.integration.openai.speaking import Speaking
from tests.lazy_imports import import_on_use
from tests.rate_clock import stop_rate_clock

if TYPE_CHECKING:
    import openai
else:
    openai = import_on_use("openai")

QUESTION = "paid annual leave"
DOCUMENTS = [
    ("leave.md", "All employees get 20 days of paid annual leave.", {"year": 2026, "team": "hr", "final": True}),
    ("old.md", "All employees get 18 days of paid annual leave.", {"year": 2019, "team": "hr", "final": False}),
    ("travel.md", "Paid travel is booked by the annual office.", {"year": 2026, "team": "office"}),
]


@pytest.fixture
def handbook(speaking: Speaking) -> str:
    """A collection that nobody made as a vector store, with a document for one department."""
    tenant = speaking.running.service.engine.sync_engine.tenant(speaking.tenant_name, collection="handbook")
    tenant.ingest([SourceDocument(source=name, data=text.encode(), metadata=data) for name, text, data in DOCUMENTS])
    secret = SourceDocument(source="pay.md", data=b"Paid annual leave of the board.", acl=("department:board",))
    tenant.ingest(secret)
    return "handbook"


def eq(key: str, value: Any, kind: str = "eq") -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value}


def test_search__finds_what_the_reader_may_see(speaking: Speaking, handbook: str) -> None:
    """Search by OpenAI's interface finds only documents that the reader may read, in any named store."""
    client = speaking.client("read")
    result = client.vector_stores.search(handbook, query=QUESTION)
    assert {hit.filename for hit in result.data} == {"leave.md", "old.md", "travel.md"}
    scores = [hit.score for hit in result.data]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[0] <= 1
    best = result.data[0]
    assert best.attributes is not None
    assert "annual leave" in best.content[0].text
    assert best.attributes["team"] == "hr"
    assert client.vector_stores.files.retrieve(best.file_id, vector_store_id=handbook).attributes == best.attributes
    board = speaking.client("read", name="board", principals=("department:board",))
    assert "pay.md" in {hit.filename for hit in board.vector_stores.search(handbook, query=QUESTION).data}
    assert len(client.vector_stores.search(handbook, query=QUESTION, max_num_results=1).data) == 1
    several = client.vector_stores.search(handbook, query=[QUESTION, "travel office"], max_num_results=2).data
    assert {hit.filename for hit in several} & {"travel.md"}
    for threshold, count in ((scores[0], scores.count(scores[0])), (0.999, 0), (0.0, 3)):
        above = client.vector_stores.search(handbook, query=QUESTION, ranking_options={"score_threshold": threshold})
        assert len(above.data) == count
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.search("handbok", query=QUESTION)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (eq("year", 2026), {"leave.md", "travel.md"}),
        (eq("year", 2026, "ne"), {"old.md"}),
        (eq("year", 2019, "gt"), {"leave.md", "travel.md"}),
        (eq("year", 2026, "gte"), {"leave.md", "travel.md"}),
        (eq("year", 2026, "lt"), {"old.md"}),
        (eq("year", 2019, "lte"), {"old.md"}),
        (eq("team", ["office", "x"], "in"), {"travel.md"}),
        (eq("team", ["office"], "nin"), {"leave.md", "old.md"}),
        (eq("final", True), {"leave.md"}),
        ({"type": "and", "filters": [eq("year", 2026), eq("team", "hr")]}, {"leave.md"}),
        (
            {"type": "or", "filters": [eq("year", 2019), {"type": "and", "filters": [eq("team", "office")]}]},
            {"old.md", "travel.md"},
        ),
    ],
)
def test_filters__select_by_attributes(
    speaking: Speaking, handbook: str, filters: dict[str, Any], names: set[str]
) -> None:
    result = speaking.client("read").vector_stores.search(handbook, query=QUESTION, filters=filters)  # type: ignore[arg-type]
    assert {hit.filename for hit in result.data} == names


def test_weights__choose_the_retriever(speaking: Speaking, handbook: str) -> None:
    client = speaking.client("read")
    url, headers = f"{speaking.running.url}/openai/v1/vector_stores/{handbook}/search", client.auth_headers

    def search(embedding: float, text: float, query: str = "canteen of hr") -> httpx.Response:
        hybrid = {"hybrid_search": {"embedding_weight": embedding, "text_weight": text}}
        return httpx.post(url, json={"query": query, "ranking_options": hybrid}, headers=headers, timeout=30)

    assert search(0, 1).json()["data"] == []  # no word of the query is in a document
    assert search(1, 0).json()["data"] != []
    by_text = search(0, 1, "travel").json()["data"]
    assert [(hit["filename"], hit["score"]) for hit in by_text] == [("travel.md", 1.0)]
    refused = search(0, 0)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "ranking_options.hybrid_search")


def test_bad_searches__are_refused_by_name(speaking: Speaking, handbook: str) -> None:
    client = speaking.client("read")
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("max_num_results", {"max_num_results": 51}),
        ("rewrite_query", {"rewrite_query": True}),
        ("ranking_options.ranker", {"ranking_options": {"ranker": "none"}}),
        ("nothing", {"extra_body": {"nothing": 1}}),
        ("query", {"query": ""}),
        ("query", {"query": []}),
    ]
    for param, body in bodies:
        with pytest.raises(openai.BadRequestError) as refused:
            client.vector_stores.search(handbook, **{"query": QUESTION, **body})
        assert refused.value.param == param
    for filters in (
        eq("a.b", 1),
        eq("team", ["hr"]),
        eq("team", "hr", "in"),
        eq("team", "hr", "gt") | {"type": "like"},
    ):
        with pytest.raises(openai.BadRequestError):
            client.vector_stores.search(handbook, query=QUESTION, filters=filters)  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="empty"):
        client.vector_stores.search(handbook, query=" ")


def test_scores__never_rise_along_the_list(speaking: Speaking, handbook: str) -> None:
    tenant = speaking.running.service.engine.sync_engine.tenant(speaking.tenant_name, collection=handbook)
    hits = tenant.search(QUESTION).hits
    cosines = [hit.dense_score or 0.0 for hit in hits]
    scores = score_hits(hits)
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(max(cosines), abs=1e-6)


def test_embeddings__are_those_of_the_service(speaking: Speaking) -> None:
    client = speaking.client("read")
    embedder = speaking.running.service.engine.sync_engine.embedder
    texts = ["annual leave", "travel"]
    answer = client.embeddings.create(model=embedder.name, input=texts)  # the SDK asks for base64
    plain = client.embeddings.create(model=embedder.name, input=texts[0], encoding_format="float")
    assert np.allclose([entry.embedding for entry in answer.data], embedder.embed(texts), atol=1e-7)
    assert plain.data[0].embedding == pytest.approx(answer.data[0].embedding)
    assert answer.usage.prompt_tokens == sum(embedder.tokenizer.count(texts))
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="text-embedding-3-small", input=texts)
    wrong: list[dict[str, Any]] = [{"input": [1, 2]}, {"input": [""]}, {"input": []}, {"input": "a", "dimensions": 3}]
    for body in wrong:
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model=embedder.name, **body)
    assert {model.id for model in client.models.list()} == {embedder.name, "writer"}
    assert client.models.retrieve(embedder.name).id == embedder.name
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4/o")


@pytest.mark.filterwarnings("ignore")  # its own
def test_litellm__searches_a_vector_store(speaking: Speaking, handbook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of LiteLLM, unmodified; it sends null for what is left out."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import reads an address
    litellm = pytest.importorskip("litellm", reason="LiteLLM's client is not installed: pip install litellm")
    server = {"custom_llm_provider": "openai", "api_base": f"{speaking.running.url}/openai/v1"}
    key = speaking.client().api_key
    options = {"filters": eq("year", 2026), "ranking_options": {"ranker": "auto", "score_threshold": 0.01}}
    for body in ({}, {"max_num_results": 1}, options):
        result = litellm.vector_stores.search(handbook, QUESTION, **body, **server, api_key=key)
        assert result["object"] == "vector_store.search_results.page"
        assert "annual leave" in result["data"][0]["content"][0]["text"]
        assert result["data"][0]["content"][0]["type"] == "text"
    assert {hit["attributes"]["year"] for hit in result["data"]} == {2026}
    created = litellm.vector_stores.create(name="Made", **server, api_key=key)
    assert speaking.client().vector_stores.retrieve(created["id"]).name == "Made"
    for error, collection, api_key in (
        (litellm.AuthenticationError, handbook, "sk-nothing"),
        (litellm.NotFoundError, "handbok", key),
    ):
        with pytest.raises(error):
            litellm.vector_stores.search(collection, QUESTION, **server, api_key=api_key)


def test_embeddings__take_lone_surrogates_that_no_tokenizer_does(
    speaking: Speaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, embedder = speaking.client("read"), speaking.running.service.engine.sync_engine.embedder
    embed, embedded = embedder.embed, []
    monkeypatch.setattr(embedder, "embed", lambda texts: (embedded.extend(texts), embed(texts))[1])
    headers = {**client.auth_headers, "content-type": "application/json"}
    body = json.dumps({"model": embedder.name, "input": "leave \ud800"})  # the SDK cannot send it
    answer = httpx.post(f"{client.base_url}embeddings", content=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    assert embedded == ["leave ?"]


def test_null__is_as_if_left_out(speaking: Speaking, handbook: str) -> None:
    """What LiteLLM's provider `openai` sends."""
    url, client = f"{speaking.running.url}/openai/v1", speaking.client()
    none = dict.fromkeys(("filters", "max_num_results", "ranking_options", "rewrite_query"))
    ranking = dict.fromkeys(("ranker", "score_threshold", "hybrid_search"))
    store = dict.fromkeys(("file_ids", "expires_after", "chunking_strategy", "metadata"))
    model = speaking.running.service.engine.sync_engine.embedder.name
    for path, body in (
        (f"/vector_stores/{handbook}/search", {"query": QUESTION, **none}),
        (f"/vector_stores/{handbook}/search", {"query": QUESTION, **none, "ranking_options": ranking}),
        ("/vector_stores", {"name": "Made", **store}),
        ("/embeddings", {"model": model, "input": "leave", **dict.fromkeys(("encoding_format", "dimensions", "user"))}),
    ):
        answer = httpx.post(f"{url}{path}", json=body, headers=client.auth_headers, timeout=30)
        assert answer.status_code == 200, answer.text


def test_rates__are_met_by_the_retries_of_the_sdk(
    speaking: Speaking, handbook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, waits = speaking.running.service, []
    client = speaking.client("read")
    rates = service.settings.service.rates.model_copy(update={"subject_per_minute": 2})
    clock = stop_rate_clock(monkeypatch)
    limiter = RateLimiter(service.settings.service.model_copy(update={"rates": rates}))
    monkeypatch.setattr(service.rate_limiter, "count", limiter.count)

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)

    monkeypatch.setattr("openai._base_client.time.sleep", wait)
    for _ in range(2):
        client.vector_stores.search(handbook, query=QUESTION)
    with pytest.raises(openai.RateLimitError, match="has used up its 2 requests a minute") as refused:
        client.vector_stores.search(handbook, query=QUESTION)
    assert (refused.value.code, refused.value.type) == ("rate_limit_exceeded", "rate_limit_error")
    requests = int(refused.value.response.headers["retry-after"])
    assert client.with_options(max_retries=2).vector_stores.search(handbook, query=QUESTION).data
    assert waits == [requests]


def test_embeddings__cost_by_number_and_length(speaking: Speaking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts to embed take slots by their number and length."""
    client, limiter = speaking.client("read"), speaking.running.service.limiter
    run, costs = limiter.run, []

    async def record(tenant: str, cost: int, *call: Any, **options: Any) -> Any:
        costs.append(cost)
        return await run(tenant, cost, *call, **options)

    monkeypatch.setattr(limiter, "run", record)
    model = client.models.list().data[0].id
    for texts in (["leave"], ["leave"] * 128, ["leave " * 500] * 4):
        client.embeddings.create(model=model, input=texts)
    assert costs == [1, 3, 13]
