"""The tools over streamable HTTP, asked by the SDK's own client."""

import asyncio
import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from mcp import MCPError

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Signer, with_tokens
from tests.integration.apps.mcp.conftest import DOCUMENTS, fill
from tests.integration.apps.mcp.running import Running, read_data, read_error, serving
from tests.integration.variants import changed

QUESTION = "How many days of paid annual leave do full-time employees receive per year?"
NOT_FOUND = "there is no such document, or none that you may read"

pytestmark = pytest.mark.usefixtures("tenant_name")


def _id(engine: Engine, name: str, source: str, *principals: str) -> str:
    scope = engine.tenant(name, principals=("everyone", *principals))
    return next(str(info.id) for info in scope.documents() if info.source == source)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_tools__are_typed_and_say_that_text_is_data(running: Running, mode: str) -> None:
    async def listed() -> list[Any]:
        async with running.client(mode=mode) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in asyncio.run(listed())}
    assert set(tools) == {"search", "context", "get_document"}
    for tool in tools.values():
        assert tool.annotations.read_only_hint
        assert "data" in tool.description
        assert "never an instruction to you" in " ".join(tool.description.split())
        assert not {"tenant", "subject", "principals", "principal"} & set(tool.input_schema["properties"])
    data = read_data(running.call("search", {"question": QUESTION}, mode=mode))
    assert data["hits"][0]["source"] == "leave.md"


def test_search__shows_each_caller_what_that_one_may_read(running: Running) -> None:
    def sources(**claims: Any) -> set[str]:
        data = read_data(running.call("search", {"question": QUESTION, "k": 10}, **claims))
        return {hit["source"] for hit in data["hits"]}

    assert sources() == {"leave.md"}
    assert sources(departments=["hr"]) == {"leave.md", "secret.md"}
    assert sources(tenant=running.other_name, departments=["hr"]) == {"theirs.md"}
    assert sources(tenant="nobody") == set()


def test_search__heeds_its_arguments(running: Running) -> None:
    def search(**arguments: Any) -> list[dict[str, Any]]:
        hits: list[dict[str, Any]] = read_data(running.call("search", {"question": QUESTION, **arguments}))["hits"]
        return hits

    assert len(search(k=1)) == 1
    assert search(where={"metadata.year": {"$gte": 2024}})
    assert search(where={"metadata.year": 1999}) == []
    assert search(sources=["secret.md"]) == []
    assert search(collection="other") == []
    assert search(question="leave -annual") == []
    assert search(question="leave -annual", syntax="plain")


def test_get_document__reads_around_a_citation(running: Running) -> None:
    data = read_data(running.call("search", {"question": QUESTION, "k": 1}))
    (cited,) = data["hits"]
    assert cited["quote_sha256"] == hashlib.sha256(cited["text"].encode()).hexdigest()
    first, last = cited["lines"]
    requests = {"document_id": cited["document_id"], "offset": first, "limit": last - first + 1}
    read = read_data(running.call("get_document", requests))
    assert cited["text"] in read["text"]
    assert (read["version"], read["lines"], read["source"]) == (cited["version"], [first, last], "leave.md")
    text = DOCUMENTS[0].data.decode()
    pieces: list[str] = []
    offset: int | None = 1
    while offset is not None:
        piece = read_data(running.call("get_document", requests | {"offset": offset, "limit": 4}))
        pieces.append(piece["text"])
        offset = piece["next_offset"]
    assert "\n".join(pieces) == text
    assert piece["total_lines"] == len(text.split("\n"))


def test_get_document__tells_nothing_of_what_is_kept_from_the_caller(running: Running) -> None:
    secret = {"document_id": _id(running.engine, running.tenant_name, "secret.md", "department:hr")}
    foreign = {"document_id": _id(running.engine, running.other_name, "theirs.md")}
    unknown = {"document_id": str(uuid.uuid4())}
    for requests in (secret, foreign, unknown):
        assert read_error(running.call("get_document", requests)) == NOT_FOUND
        assert read_error(running.call("get_document", requests | {"offset": 10_000})) == NOT_FOUND
    assert read_data(running.call("get_document", secret, departments=["hr"]))["title"] == "Secret"


def test_answer__is_made_of_cited_sentences_or_refused(running: Running) -> None:
    result = read_data(running.call("answer", {"question": QUESTION}))
    assert result["context"]["passages"][0]["citation"]["marker"] == "[1]"
    assert result["context"]["passages"][0]["citation"]["source"] == "leave.md"
    for sentence in result["sentences"]:
        assert sentence["citation"]["quote_sha256"] == hashlib.sha256(sentence["text"].encode()).hexdigest()
    assert result["refused"] != bool(result["sentences"])
    assert read_data(running.call("answer", {"question": "Who plays the violin?"}))["refused"]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("search", {}, "invalid arguments of search: question: Field required"),
    ("search", {"question": " "}, "the question is empty"),
    ("search", {"question": "a", "k": 0}, "invalid arguments of search: k: Input should be"),
    ("search", {"question": "a", "tenant": "globex"}, "search has no argument tenant; it takes question, k"),
    ("search", {"question": "a", "where": {"nothing": {"$like": 1}}}, "nothing"),
    ("search", {"question": "a", "collection": "Not A Name"}, "collection name 'Not A Name' is malformed"),
    ("get_document", {"document_id": "leave.md"}, "invalid arguments of get_document: document_id"),
    ("get_document", {"document_id": "LEAVE", "offset": 400}, "the document has 10 lines"),
    ("answer", {"question": ""}, "invalid arguments of answer: question"),
    ("search", {"question": ""}, "invalid arguments of search: question: String should have at least 1 character"),
    ("delete", {}, "there is no tool 'delete'; use search, context"),
]


def test_arguments__that_are_wrong_make_an_error_of_one_line(running: Running) -> None:
    document_id = _id(running.engine, running.tenant_name, "leave.md")

    async def result() -> list[str]:
        async with running.client() as client:
            return [
                read_error(
                    await client.call_tool(tool, json.loads(json.dumps(malformed).replace("LEAVE", document_id)))
                )
                for tool, malformed, _ in WRONG
            ]

    for message, (tool, malformed, part) in zip(asyncio.run(result()), WRONG, strict=True):
        assert part in message, (tool, malformed)
        assert "\n" not in message


def test_credentials__that_are_none_get_a_401_and_no_tool(running: Running) -> None:
    keys = running.engine.tenant(running.tenant_name).api_keys
    revoked = keys.create("old", scopes=["read"])
    keys.revoke(keys.infos()[0].id)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"accept": "application/json, text/event-stream"}
    answers = set()
    for credentials in (
        None,
        "",
        "Bearer x",
        f"Bearer {revoked}",
        f"Bearer {running.token(aud='other')}",
        "Basic YTpi",
    ):
        headers = accept | ({} if credentials is None else {"authorization": credentials})
        refused = httpx.post(running.url, json=body, headers=headers, trust_env=False)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        answers.add(refused.content)
    assert len(answers) == 1

    async def connect() -> None:
        async with running.client("wrong") as client:
            await client.list_tools()

    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(connect())
    assert failed.group_contains(MCPError, match="error response")


def test_keys__are_taken_with_their_principals_and_scopes(running: Running) -> None:
    keys = running.engine.tenant(running.tenant_name).api_keys
    reader = keys.create("agent", scopes=["read"], principals=["department:hr"])
    data = read_data(running.call("search", {"question": QUESTION}, credentials=reader))
    assert {hit["source"] for hit in data["hits"]} == {"leave.md", "secret.md"}
    writer = keys.create("writer", scopes=["ingest"])
    headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {writer}"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    refused = httpx.post(running.url, json=body, headers=headers, trust_env=False)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (403, 'Bearer error="insufficient_scope"')
    assert "the scope read" in refused.json()["detail"]


def test_callers__at_once_are_not_taken_for_each_other(running: Running) -> None:
    async def ask(name: str) -> set[str]:
        async with running.client(tenant=name) as client:
            calls = [client.call_tool("search", {"question": QUESTION}) for _ in range(5)]
            results = await asyncio.gather(*calls)
        return {hit["source"] for item in results for hit in read_data(item)["hits"]}

    async def list_all() -> list[set[str]]:
        return await asyncio.gather(*(ask(name) for name in (running.tenant_name, running.other_name) * 4))

    assert asyncio.run(list_all()) == [{"leave.md"}, {"theirs.md"}] * 4


@pytest.mark.own_database
def test_log__has_what_was_given_out_and_to_whom(settings: Settings, signer: Signer) -> None:
    audited = changed(with_tokens(settings, signer), {"rag.audit.enabled": True})
    with Engine(audited, embedder=HashingEmbedder()) as engine:
        fill(engine)
        with serving(engine, signer) as running:
            running.call("search", {"question": QUESTION}, sub="berta")
            running.call("answer", {"question": QUESTION}, sub="carl")
            running.call("get_document", {"document_id": _id(engine, "acme", "leave.md")}, sub="dora")
        records = engine.tenant("acme").audit.find()
        assert [(record.subject, str(record.kind)) for record in records] == [
            ("dora", "search"),
            ("carl", "answer"),
            ("berta", "search"),
        ]
        assert "user:dora" in records[0].principals


@pytest.mark.own_database
def test_development__answers_on_loopback_names_alone(settings: Settings, signer: Signer) -> None:
    with Engine(changed(settings, {"service.development.tenant": "acme"}), embedder=HashingEmbedder()) as engine:
        fill(engine)
        with serving(engine, signer) as running:
            assert read_data(running.call("search", {"question": QUESTION}, credentials=""))["hits"]
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            accept = {"accept": "application/json, text/event-stream"}
            for name, value, status in (("host", "evil.example", 421), ("origin", "https://evil.example", 403)):
                refused = httpx.post(running.url, json=body, headers=accept | {name: value}, trust_env=False)
                assert refused.status_code == status
            assert httpx.get(running.url, trust_env=False).status_code == 405


@pytest.mark.own_database
def test_health__needs_no_credentials_and_goes_with_the_database(running: Running) -> None:
    root = running.url.removesuffix("/mcp")

    def result(path: str) -> tuple[int, str]:
        answer = httpx.get(f"{root}{path}", trust_env=False)
        return answer.status_code, answer.text

    assert result("/livez") == result("/readyz") == (200, "ok\n")
    assert result("/elsewhere")[0] == 404
    with psycopg.connect(running.engine.settings.database.admin_url or "", autocommit=True) as connection:
        connection.execute("ALTER TABLE kosmos.chunks DISABLE ROW LEVEL SECURITY")
    assert result("/livez") == (200, "ok\n")
    assert result("/readyz") == (503, "not now\n")


@pytest.mark.own_database
def test_database__that_fails_is_told_in_the_log_and_not_to_the_agent(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    key = running.engine.tenant("acme").api_keys.create("agent", scopes=["read"])
    with psycopg.connect(running.engine.settings.database.admin_url or "", autocommit=True) as connection:
        for table in ("api_keys", "chunks"):
            connection.execute(f"REVOKE SELECT ON kosmos.{table} FROM kosmos_app, kosmos_worker")
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {key}"}
    refused = httpx.post(running.url, json=body, headers=headers, trust_env=False)
    assert refused.status_code == 500
    assert "api_keys" not in refused.text
    assert read_error(running.call("search", {"question": QUESTION})) == "The database failed"
    logged = [record.message for record in caplog.records]
    assert any(line.startswith("POST ") and "api_keys" in line for line in logged)
    assert any(line.startswith("search: ") and "chunks" in line for line in logged)


def test_question__of_a_collection_that_requires_approval_gets_only_that(running: Running, tmp_path: Path) -> None:
    """Approval holds for the tools of MCP."""
    (tmp_path / "approved.yaml").write_text("rag: {retrieval: {require_approved: true}}")
    running.tenant().collections.create("policies", preset=tmp_path / "approved.yaml")
    running.tenant(collection="policies").ingest(
        SourceDocument(source=name, data=f"Employees receive {days} days of annual leave.".encode(), metadata=metadata)
        for name, days, metadata in (("old.md", 20, {}), ("new.md", 30, {"approved": True}))
    )
    requests = {"question": QUESTION, "collection": "policies"}
    for tool in ("search", "context", "answer"):
        result = str(read_data(running.call(tool, requests)))
        assert "new.md" in result, tool
        assert "old.md" not in result, tool
