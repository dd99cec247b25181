"""Each route with a request that it serves."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kosmos_rag import SourceDocument
from kosmos_rag.apps.http.routes import resources
from kosmos_rag.apps.http.toolkit.pagination import encode_cursor
from kosmos_rag.storage.queue import kinds
from tests.integration.apps.http.serving import Running, parse_events
from tests.waiting import eventually

HANDBOOK = {
    "leave.md": b"# Leave\n\n## Annual\n\nAll full-time employees receive 20 days of paid annual leave per year.\n",
    "expenses.md": b"# Expenses\n\n## Travel\n\nTravel expenses are paid back within 14 days of the receipt.\n",
}
QUESTION = "How many days of paid annual leave do full-time employees receive?"

pytestmark = pytest.mark.usefixtures("tenant_name")


@pytest.fixture
def served(running: Running) -> Running:
    running.tenant().ingest(SourceDocument(source=name, data=data) for name, data in HANDBOOK.items())
    return running


def _ok(response: httpx.Response, status: int = 200) -> dict[str, Any]:
    assert response.status_code == status, response.text
    return response.json()


def test_search__returns_cited_passages_without_scores(served: Running) -> None:
    with served.client() as client:
        result = _ok(client.post("/v1/search", json={"question": QUESTION, "k": 1}))
    (hit,) = result["hits"]
    assert hit["source"] == "leave.md"
    assert hit["lines"][0] >= 1
    assert not {"score", "dense_rank", "dense_score", "lexical_rank", "lexical_score", "fused_rank"} & hit.keys()
    assert not {"fused_score", "score_contributions", "rerank_score", "signals"} & hit.keys()
    assert not {"retrievers", "timings_ms", "expansion", "intent", "cached"} & result.keys()


def test_search__explains_to_administrators_only(served: Running) -> None:
    arguments = {"question": QUESTION, "explain": True}
    with served.client() as client:
        assert client.post("/v1/search", json=arguments).status_code == 403
    with served.client(scope="admin") as client:
        result = _ok(client.post("/v1/search", json=arguments))
    assert result["hits"][0]["fused_rank"] == 1
    assert result["retrievers"]["dense"]["returned"] == 2


def test_answer__explains_its_units_to_administrators_only(served: Running) -> None:
    arguments = {"question": "Which penguins swim to Norway?", "explain": True}
    with served.client() as client:
        assert client.post("/v1/answer", json=arguments).status_code == 403
        plain = _ok(client.post("/v1/answer", json=arguments | {"explain": False}))
    with served.client(scope="admin") as client:
        result = _ok(client.post("/v1/answer", json=arguments))
    assert not {"units", "refusal_reason"} & plain.keys()
    assert result["refused"]
    assert "below rag.answer.threshold" in result["refusal_reason"]
    assert {frozenset(unit["parts"]) for unit in result["units"]} == {frozenset(("meaning", "words", "rank"))}


def test_search__filters(served: Running) -> None:
    with served.client() as client:
        arguments = {"question": QUESTION, "sources": ["expenses.md"], "where": {"title": "Expenses"}}
        result = _ok(client.post("/v1/search", json=arguments))
        assert [hit["source"] for hit in result["hits"]] == ["expenses.md"]
        refused = client.post("/v1/search", json={"question": QUESTION, "where": {"nothing": {"$like": 1}}})
        signed = _ok(client.post("/v1/search", json={"question": "leave -annual"}))
        plain = _ok(client.post("/v1/context", json={"question": "leave -annual", "syntax": "plain"}))["retrieval"]
        unknown = client.post("/v1/answer", json={"question": "leave", "syntax": "lucene"})
    assert refused.status_code == unknown.status_code == 422
    assert refused.json()["type"] == "urn:kosmos-rag:problem:request-invalid"
    assert signed["operators"] == {"phrases": [], "required": [], "excluded": ["annual"], "signed_text": []}
    assert [hit["source"] for hit in signed["hits"]] == ["expenses.md"]
    assert not any(plain["operators"].values())


def test_context__is_numbered(served: Running) -> None:
    with served.client() as client:
        result = _ok(client.post("/v1/context", json={"question": QUESTION, "max_tokens": 200}))
    assert result["text"].startswith("[1] ")
    assert result["passages"][0]["citation"]["marker"] == "[1]"
    assert result["max_tokens"] == 200


def test_answer__is_made_of_cited_sentences(served: Running) -> None:
    with served.client() as client:
        result = _ok(client.post("/v1/answer", json={"question": QUESTION}))
    assert "refused" in result
    assert result["context"]["passages"][0]["citation"]["source"] == "leave.md"


@pytest.mark.parametrize(
    ("path", "body"), [("/api/chat", {"query": QUESTION, "model": "llama3.1"}), ("/v1/answer", {"question": QUESTION})]
)
def test_events__come_in_order(served: Running, path: str, body: dict[str, str]) -> None:
    with (
        served.client() as client,
        client.stream("POST", path, json=body, headers={"accept": "text/event-stream"}) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        events = list(parse_events(response.iter_lines()))
    assert [name for name, _ in events] == ["sources", "token", "citations", "done"]
    sources, token, _, payload = (json.loads(data) for _, data in events)
    assert sources["context"]["passages"][0]["citation"]["source"] == "leave.md"
    assert any("llama3.1 is not served here" in note for note in sources["warnings"]) == ("query" in body)
    assert token["text"].strip() == payload["text"].strip()


def test_events__carry_whatever_text_was_sent(served: Running) -> None:
    body = rb'{"query": "annual leave", "model": "\ud800"}'
    with served.client() as client:
        output = client.post("/api/chat", content=body, headers={"content-type": "application/json"})
    assert [name for name, _ in parse_events(output.iter_lines())][-1] == "done"


def test_documents__by_pages_one_and_gone(served: Running) -> None:
    with served.client(scope="read ingest") as client:
        first = _ok(client.get("/v1/documents", params={"limit": 1}))
        second = _ok(client.get("/v1/documents", params={"limit": 1, "cursor": first["next"]}))
        assert [page["documents"][0]["source"] for page in (first, second)] == ["expenses.md", "leave.md"]
        assert second["next"] is None
        path = f"/v1/documents/{first['documents'][0]['id']}"
        assert _ok(client.get(path))["title"] == "Expenses"
        assert client.delete(path).status_code == 204
        assert client.get(path).status_code == 404
        assert len(_ok(client.get("/v1/documents"))["documents"]) == 1


def test_documents__are_sorted_over_pages(served: Running) -> None:
    scope = served.tenant()
    # Two of one size, and one of more chunks.
    texts = {"a.md": "Short.", "b.md": "Other.", "c.md": "# One\n\nLong text.\n\n# Two\n\n" + "Words of a page. " * 200}
    for source, text in texts.items():
        scope.ingest([SourceDocument(source=source, data=text.encode())])
    with served.client() as client:
        everything = _ok(client.get("/v1/documents"))["documents"]
        for sort in ("source", "updated_at", "chunks", "bytes"):
            listed: list[dict[str, Any]] = []
            cursor: str | None = ""
            while cursor is not None:
                params = {"limit": 2, "sort": sort, **({"cursor": cursor} if cursor else {})}
                page = _ok(client.get("/v1/documents", params=params))
                listed += page["documents"]
                cursor = page["next"]
            by_source = sorted(everything, key=lambda document: document["source"])
            expected = by_source if sort == "source" else sorted(by_source, key=itemgetter(sort), reverse=True)
            assert [document["source"] for document in listed] == [document["source"] for document in expected]
        assert [document["source"] for document in listed][:1] == ["c.md"]
        cursor = _ok(client.get("/v1/documents", params={"limit": 1, "sort": "bytes"}))["next"]
        for other in ("chunks", "source"):
            refused = client.get("/v1/documents", params={"cursor": cursor, "sort": other})
            assert refused.status_code == 422
            assert "cursor" in refused.text
        assert client.get("/v1/documents", params={"sort": "title"}).status_code == 422


@pytest.mark.parametrize(
    "wrong", [{"k": True}, {"k": "5"}, {"k": 5.0}, {"explain": 0}, {"explain": "yes"}, {"max_tokens": True}]
)
def test_body__of_another_type_is_refused(running: Running, wrong: dict[str, object]) -> None:
    """A value of another JSON type is refused: `k: true`, `explain: 0`."""
    with running.client() as client:
        refused = client.post("/v1/context", json={"question": QUESTION, **wrong})
        assert refused.status_code == 422
        assert next(iter(wrong)) in refused.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"cursor": "x"},
        {"cursor": 1},
        {"group_by": "source"},
        {"group_size": 2},
        {"mmr": "1"},
        {"mmr": 2},
        {"facets": ["acl"]},
    ],
)
def test_search__refuses_options_that_are_malformed(running: Running, wrong: dict[str, object]) -> None:
    with running.client() as client:
        refused = client.post("/v1/search", json={"question": QUESTION, **wrong})
        assert refused.status_code == 422
        assert next(iter(wrong)).removesuffix("s") in refused.text


@pytest.mark.parametrize("cursor", ["x", "bnVsbA", "WzFd", "WyJhIiwgImIiLCAiYyJd", "é"])
def test_documents__refuse_a_cursor_that_is_none(running: Running, cursor: str) -> None:
    with running.client() as client:
        assert client.get("/v1/documents", params={"cursor": cursor}).status_code == 422


@pytest.mark.parametrize("number", [10**19, -(10**19)])
def test_lists__refuse_a_cursor_of_a_number_that_no_row_has(running: Running, number: int) -> None:
    with running.client(scope="read admin") as client:
        for path, position in (
            ("/v1/documents?sort=chunks", ("chunks", str(number), "a.md", "default")),
            ("/v1/documents?sort=updated_at", ("updated_at", str(number), "a.md", "default")),
            ("/v1/events?limit=5", (str(number),)),
        ):
            assert client.get(f"{path}&cursor={encode_cursor(*position)}").status_code == 422, path


def test_upload__becomes_a_job_once(running: Running) -> None:
    with running.client(scope="read ingest") as client:

        def send(data: bytes, key: str | None = None) -> httpx.Response:
            headers = {"idempotency-key": key} if key else {}
            params = {"source": "leave.md", "metadata": '{"year": 2026}', "reader": ["department:hr"]}
            return client.post("/v1/documents", params=params, content=iter([data[:9], data[9:]]), headers=headers)

        response = send(HANDBOOK["leave.md"], "once")
        job = _ok(response, 202)
        assert response.headers["location"] == f"/v1/jobs/{job['id']}"
        assert (job["state"], job["source"]) == ("queued", "leave.md")
        assert _ok(send(HANDBOOK["leave.md"], "once"), 202)["id"] == job["id"]
        assert send(b"another", "once").status_code == 422
        elsewhere = {
            "source": "leave.md",
            "metadata": '{"year": 2026}',
            "reader": "department:hr",
            "collection": "other",
        }
        again = {"idempotency-key": "once"}
        sent_elsewhere = client.post("/v1/documents", params=elsewhere, content=HANDBOOK["leave.md"], headers=again)
        assert sent_elsewhere.status_code == 422
        with running.client(scope="ingest", sub="berta") as other:
            params = {"source": "other.md"}
            of_another = other.post("/v1/documents", params=params, content=b"text", headers=again)
            assert _ok(of_another, 202)["id"] != job["id"]
        stored = running.tenant().jobs.find(ids=[job["id"]])[0].payload
        assert stored["document"]["acl"] == ["department:hr"]
        assert stored["document"]["metadata"] == {"year": 2026}


@pytest.mark.parametrize("wrong", [{"metadata": r'{"a": "\u0000"}'}, {"metadata": r'{"\u0000": 1}'}])
def test_upload__refuses_what_cannot_be_stored(running: Running, wrong: dict[str, str]) -> None:
    with running.client(scope="ingest") as client:
        refused = client.post("/v1/documents", params={"source": "a", **wrong}, content=b"text")
        assert (refused.status_code, refused.json()["code"]) == (422, "unreadable")
        escaped = {"source": "a", "metadata": r'{"a": "\\u0000"}'}
        assert client.post("/v1/documents", params=escaped, content=b"text").status_code == 202


@pytest.mark.own_database
def test_upload__whose_client_hangs_up_is_no_error_of_ours(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    url = httpx.URL(running.url)
    head = (
        f"POST /v1/documents?source=a HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: 1000\r\n"
        f"Authorization: Bearer {running.token(scope='ingest')}\r\n\r\nsome of it"
    )
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(head.encode())
    labels = {"method": "POST", "route": "/v1/documents", "status": "499"}
    get_sample = running.service.metrics.registry.get_sample_value
    eventually(lambda: get_sample("kosmos_http_requests_total", labels) == 1)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_upload__sent_many_times_at_once_becomes_one_job(running: Running) -> None:
    with running.client(scope="ingest") as client, ThreadPoolExecutor(8) as threads:

        def send(_: int) -> object:
            params, headers = {"source": "leave.md"}, {"idempotency-key": "once"}
            return _ok(client.post("/v1/documents", params=params, content=b"text", headers=headers), 202)["id"]

        assert len(set(threads.map(send, range(16)))) == 1
        assert [job["source"] for job in _ok(client.get("/v1/jobs"))["jobs"]].count("leave.md") == 1


def test_jobs__are_listed_called_off_and_tried_again(running: Running) -> None:
    with running.client(scope="ingest") as client:
        ids = [
            _ok(client.post("/v1/documents", params={"source": f"{n}.md"}, content=b"text"), 202)["id"]
            for n in range(3)
        ]
        first = _ok(client.get("/v1/jobs", params={"limit": 2, "state": "queued"}))
        rest = _ok(client.get("/v1/jobs", params={"limit": 2, "state": "queued", "cursor": first["next"]}))
        assert [job["id"] for job in first["jobs"] + rest["jobs"]][: len(ids)] == sorted(ids, reverse=True)
        path = f"/v1/jobs/{ids[0]}"
        assert _ok(client.post(f"{path}/cancel"))["jobs"] == [ids[0]]
        assert _ok(client.get(path))["state"] == "cancelled"
        assert _ok(client.post(f"{path}/retry"))["jobs"] == [ids[0]]
        upkeep = [job["id"] for job in _ok(client.get("/v1/jobs"))["jobs"] if job["kind"] in kinds.UPKEEP]
        assert upkeep
        assert {client.post(f"/v1/jobs/{job}/cancel").status_code for job in upkeep} == {403}
    with running.client(scope="ingest admin") as administrator:
        assert _ok(administrator.post(f"/v1/jobs/{upkeep[0]}/cancel"))["jobs"] == [upkeep[0]]


def test_events__are_read_from_the_cursor_of_the_last_page(running: Running) -> None:
    with running.client(scope="admin") as client:
        refused = client.get("/v1/events")
        assert refused.status_code == 422
        assert "kosmos-rag events start" in refused.text
        running.tenant().events.start()
        start = _ok(client.get("/v1/events"))
        assert start["events"] == []
        running.tenant().ingest([SourceDocument(source=f"{number}.md", data=b"text") for number in range(3)])
        first = _ok(client.get("/v1/events", params={"cursor": start["next"], "limit": 2}))
        rest = _ok(client.get("/v1/events", params={"cursor": first["next"], "limit": 2}))
        assert [event["sequence"] for event in first["events"] + rest["events"]] == [1, 2, 3]
        assert rest["events"][0]["type"] == "document.published"
        assert rest["events"][0]["data"]["source"] == "2.md"
        last = _ok(client.get("/v1/events", params={"cursor": rest["next"]}))
        assert (last["events"], last["next"]) == ([], rest["next"])
        assert client.get("/v1/events", params={"cursor": "abc"}).status_code == 422


def test_collections__are_made_listed_and_removed(running: Running) -> None:
    with running.client(scope="admin") as client:
        result = _ok(client.post("/v1/collections", json={"name": "handbook", "preset": "corporate"}), 201)
        assert result.pop("created_at")
        assert result == {"name": "handbook", "preset": "corporate", "chunks": 0}
        (listed,) = _ok(client.get("/v1/collections"))["collections"]
        assert listed == _ok(client.get("/v1/collections/handbook"))
        assert {name: listed[name] for name in result} == result
        for preset in ("./x.yaml", "nothing"):
            assert client.post("/v1/collections", json={"name": "h2", "preset": preset}).status_code == 422
            assert client.put("/v1/collections/handbook/preset", json={"preset": preset}).status_code == 422
        other = _ok(client.put("/v1/collections/handbook/preset", json={"preset": "corporate-enforced"}))
        assert other == _ok(client.get("/v1/collections/handbook"))
        assert other["preset"] == "corporate-enforced"
        assert client.put("/v1/collections/nothing/preset", json={"preset": "corporate"}).status_code == 404
        assert client.delete("/v1/collections/handbook").status_code == 204
        assert client.get("/v1/collections/handbook").status_code == 404


def test_query_parameters__of_another_name_are_refused(running: Running) -> None:
    """The service refuses unknown query parameters, so a misspelt list of readers is not ignored.

    Readers under a wrong name would leave a document open to everyone.
    """
    with running.client(scope="read ingest") as client:
        for path in ("/v1/documents?source=a&readers=department:hr", "/v1/documents?source=a&acl=department:hr"):
            refused = client.post(path, content=b"The salaries.")
            assert refused.status_code == 422
            assert "use source, collection, title, language, reader, metadata" in refused.json()["detail"]
        assert client.get("/v1/documents?colection=hr").status_code == 422
        assert client.get("/v1/stats?collection=hr").status_code == 422
        assert _ok(client.get("/v1/jobs"))["jobs"] == []


def test_stats__are_of_what_the_reader_may_read(running: Running) -> None:
    acme = running.tenant()
    acme.ingest(
        [
            SourceDocument(source="a", data=b"Some words for all."),
            SourceDocument(source="b", data=b"Some words for HR.", acl=("department:hr", "role:Manager")),
            SourceDocument(source="c", data=b"Some words for IT.", acl=("department:it",)),
        ]
    )
    with running.client(roles=["Manager"]) as client:
        assert _ok(client.get("/api/rag/stats"))["departments"] == {"general": 2}
    with running.client(departments=["hr"]) as client:
        assert _ok(client.get("/api/rag/stats")) == {
            "total_documents": 2,
            "total_chunks": 2,
            "departments": {"general": 1, "hr": 1},
            "embedding_dimension": running.service.engine.sync_engine.embedder.dimensions,
        }


def test_reload__has_mirrors_looked_at_now_though_newer_jobs_wait(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_MAX_RELOADED", 1)
    jobs = running.tenant(collection="mirrors").jobs
    mirror = jobs.enqueue(str(tmp_path), every=timedelta(hours=1), prune=False)
    with running.client(scope="ingest") as client:  # tried again later, as where the model is away
        _ok(client.post("/v1/documents", params={"source": "a.md"}, content=b"Words."), 202)
    admin = running.service.settings.database.admin_url or ""
    with psycopg.connect(admin) as connection:  # as it is between two looks
        connection.execute(
            "UPDATE kosmos.jobs SET state = 'scheduled', run_at = now() + '1 hour' WHERE tenant = %s",
            [running.tenant_name],
        )
    with running.client(scope="read") as client:
        assert client.post("/api/rag/reload").status_code == 403
    with running.client(scope="admin") as client:
        output = _ok(client.post("/api/rag/reload"), 202)
    assert (output["status"], output["jobs"]) == ("reloading", [str(mirror)])
    (job,) = jobs.find(ids=[mirror])
    assert (job.state, job.every_s, job.payload["prune"]) == ("queued", 3600.0, False)


def test_reload__without_sources_says_what_makes_one(running: Running) -> None:
    with running.client(scope="admin", tenant=f"{running.tenant_name}-without") as client:
        output = _ok(client.post("/api/rag/reload"), 202)
    assert (output["status"], output["jobs"]) == ("nothing to reload", [])
    assert "kosmos-rag enqueue FOLDER --every" in output["message"]


def test_health__needs_no_credentials(running: Running) -> None:
    with running.client("") as client:
        assert client.get("/livez").text == "ok\n"
        assert client.get("/readyz").text == "ok\n"


@pytest.mark.own_database
def test_readiness__stays_while_a_newer_service_is_put_in_place(running: Running) -> None:
    with running.client("") as client, psycopg.connect(running.service.settings.database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.alembic_version SET version_num = '9999'")
        connection.execute("CREATE TABLE kosmos.of_the_newer (tenant_id uuid)")
        connection.commit()
        assert client.get("/readyz").status_code == 200
        connection.execute("COMMENT ON TABLE kosmos.alembic_version IS '9999'")
        connection.commit()
        assert client.get("/readyz").status_code == 503


@pytest.mark.own_database
def test_readiness__is_looked_at_once_for_all_who_ask(running: Running) -> None:
    looking = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%alembic_version%'"
    )
    admin = running.service.settings.database.admin_url or ""
    with (
        running.client("") as client,
        psycopg.connect(admin) as locking,
        psycopg.connect(admin, autocommit=True) as other,
    ):
        locking.execute("LOCK TABLE kosmos.alembic_version IN ACCESS EXCLUSIVE MODE")
        with ThreadPoolExecutor(12) as threads:
            answers = [threads.submit(client.get, "/readyz") for _ in range(12)]
            eventually(lambda: other.execute(looking).fetchone() != (0,))
            assert client.get("/livez").status_code == 200
            assert other.execute(looking).fetchone() == (1,)
            locking.rollback()
        assert {answer.result().status_code for answer in answers} == {200}


@pytest.mark.own_database
@pytest.mark.parametrize(
    "fault",
    ["UPDATE kosmos.alembic_version SET version_num = '0000'", "ALTER TABLE kosmos.chunks DISABLE ROW LEVEL SECURITY"],
)
def test_readiness__goes_with_the_database(running: Running, fault: str) -> None:
    with running.client("") as client, psycopg.connect(running.service.settings.database.admin_url or "") as connection:
        assert client.get("/readyz").status_code == 200
        connection.execute(fault)
        connection.commit()
        output = client.get("/readyz")
        assert (output.status_code, output.text) == (503, "not now\n")
        assert client.get("/livez").status_code == 200


def test_openapi__names_every_route_and_its_errors(running: Running) -> None:
    with running.client("") as client:
        output = _ok(client.get("/openapi.json"))
    assert {"/v1/search", "/v1/context", "/v1/answer", "/api/chat", "/v1/documents", "/v1/jobs"} <= set(output["paths"])
    search = output["paths"]["/v1/search"]["post"]
    assert "application/problem+json" in search["responses"]["429"]["content"]
    assert search["security"] == [{"HTTPBearer": ["read"]}]


def test_request__is_known_by_its_id(running: Running) -> None:
    with running.client("") as client:
        assert client.get("/livez", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
        assert len(client.get("/livez", headers={"x-request-id": "no spaces"}).headers["x-request-id"]) == 16
