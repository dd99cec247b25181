"""The client against the service: its records are those of the library, and so are its errors."""

import asyncio
import math
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest

from kosmos_rag import SourceDocument
from kosmos_rag.apps.client import AsyncClient, Client
from kosmos_rag.apps.errors import NotAuthenticated, NotPermitted, Overloaded, ServiceUnreachable, TooManyRequests
from kosmos_rag.apps.http.toolkit.errors import encode_problem
from kosmos_rag.apps.problem_details import PROBLEMS
from kosmos_rag.core import errors
from kosmos_rag.core.types import AnswerDone, AnswerPiece, AnswerSources, Filter, JobState, Operators, Turn
from tests.files import write_pdf
from tests.integration.apps.http.serving import Running
from tests.integration.variants import opened

ROOT = Path(__file__).parents[4]
LEAVE = b"# Leave\n\n## Annual\n\nAll full-time employees receive 20 days of paid annual leave per year.\n"
# The separators are no ends of lines to the stream.
TRAVEL = "# Expenses\n\n## Travel\n\nTravel expenses are paid back\u2028within 14 days\x85of the receipt.\n".encode()
QUESTION = "How many days of paid annual leave do full-time employees receive?"


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def served(running: Running, tenant_name: str) -> Running:
    documents = [SourceDocument(source="leave.md", data=LEAVE), SourceDocument(source="travel.md", data=TRAVEL)]
    running.tenant().ingest(documents)
    return running


@pytest.fixture
def connect(served: Running) -> Iterator[Callable[..., Client]]:
    opened: list[Client] = []

    def connected(**claims: Any) -> Client:
        opened.append(Client(served.url, served.token(**claims)))
        return opened[-1]

    yield connected
    for client in opened:
        client.close()


def test_search__gives_what_the_library_gives(served: Running, connect: Callable[..., Client]) -> None:
    scope = served.tenant()
    result, response = scope.search(QUESTION, 1), connect(scope="admin").search(QUESTION, 1, explain=True)
    assert response.hits == result.hits
    assert (response.retrievers, response.stages, response.requested, response.incomplete_reason) == (
        result.retrievers,
        result.stages,
        result.requested,
        result.incomplete_reason,
    )
    assert response.explain().splitlines()[0] == f"question  {QUESTION}"
    required = scope.search("+travel expenses")
    assert connect().search("+travel expenses").operators == required.operators == Operators(required=("travel",))
    assert not any(asdict(connect().search("+travel expenses", syntax="plain").operators).values())
    plain = connect().search(QUESTION, filter=Filter(sources=("travel.md",)))
    assert [(hit.source, math.isnan(hit.score), hit.dense_rank) for hit in plain.hits] == [("travel.md", True, None)]
    assert plain.hits[0].location == scope.search(QUESTION, filter=Filter(sources=("travel.md",))).hits[0].location


def test_answer__is_explained_as_by_the_library(served: Running, connect: Callable[..., Client]) -> None:
    answer = served.tenant().answer(QUESTION)
    explained = connect(scope="admin").answer(QUESTION, explain=True)
    assert [(unit.text, unit.marker) for unit in explained.units] == [(unit.text, unit.marker) for unit in answer.units]
    assert explained.explain().splitlines() == answer.explain().splitlines()
    assert connect().answer(QUESTION).units == ()


def test_context_and_answer__cite_as_the_library_does(served: Running, connect: Callable[..., Client]) -> None:
    scope, client = served.tenant(), connect()
    context, response = scope.context(QUESTION, max_tokens=300), client.context(QUESTION, max_tokens=300)
    assert (response.text, response.citations, response.tokens, response.omitted) == (
        context.text,
        context.citations,
        context.tokens,
        context.omitted,
    )
    assert [item.chunk_ids for item in response.passages] == [item.chunk_ids for item in context.passages]
    answered, whole = client.answer(QUESTION, history=[Turn(question="Hello?", answer="Yes.")]), scope.answer(QUESTION)
    assert (answered.text, answered.refused, answered.verified) == (whole.text, whole.refused, whole.verified)
    assert answered.sentences == whole.sentences
    assert answered.search_query == whole.search_query


def test_events__are_the_records_of_a_stream(connect: Callable[..., Client]) -> None:
    client = connect()
    events = list(client.stream_answer("When are travel expenses paid back?"))
    assert [type(event) for event in events] == [AnswerSources, AnswerPiece, AnswerDone]
    sources, piece, result = events
    assert isinstance(sources, AnswerSources)
    assert isinstance(piece, AnswerPiece)
    assert isinstance(result, AnswerDone)
    assert sources.context.passages == result.answer.context.passages
    assert piece.text.strip() == result.answer.text.strip()
    assert "\u2028" in "".join(passage.text for passage in sources.context.passages)
    assert result.answer.text == client.answer("When are travel expenses paid back?").text


def test_documents_and_jobs__from_upload_to_deletion(served: Running, connect: Callable[..., Client]) -> None:
    client = connect(scope="read ingest")
    document = SourceDocument(
        source="new.md", data=b"New.", title="News", metadata={"year": 2026}, acl=("department:hr",)
    )
    with pytest.raises(errors.RequestError, match="is empty; give at least one name"):
        client.upload(SourceDocument(source="secret.md", data=b"Secret.", acl=()))
    job = client.upload(document, collection="handbook", key="once")
    assert client.upload(document, collection="handbook", key="once").id == job.id
    assert (job.state, job.payload) == (JobState.QUEUED, {"document": {"source": "new.md"}})
    (stored_job,) = served.tenant().jobs.find(ids=[job.id])
    assert stored_job.payload["document"]["metadata"] == {"year": 2026}
    assert client.job(job.id).run_at == stored_job.run_at
    assert job.id in [item.id for item in client.jobs(states=[JobState.QUEUED]).items]
    assert (client.cancel_job(job.id), client.retry_job(job.id)) == (True, True)

    first = client.documents(limit=1)
    second = client.documents(limit=1, cursor=first.next)
    known_documents = served.tenant().documents()
    assert (*first.items, *second.items, second.next) == (*known_documents, None)
    assert client.document(known_documents[0].id) == known_documents[0]
    changed = client.update_metadata(known_documents[0].id, {"approved": True})
    assert changed.metadata == {**known_documents[0].metadata, "approved": True}
    assert client.update_metadata(changed.id, {"approved": None}) == known_documents[0]
    client.delete_document(known_documents[0].id)
    with pytest.raises(errors.NotFound, match="no such document"):
        client.document(known_documents[0].id)
    assert client.stats().total_documents == 1


def test_collections__are_made_and_removed(served: Running, connect: Callable[..., Client]) -> None:
    client = connect(scope="admin")
    collection = client.create_collection("handbook", preset="corporate")
    assert [collection] == [info for info in client.collections() if info.preset] == [client.collection("handbook")]
    assert served.tenant().collections.infos() == client.collections()
    assert client.set_preset("handbook", preset="adr").preset == "adr"
    client.delete_collection("handbook")
    with pytest.raises(errors.NotFound):
        client.collection("handbook")


def test_sources__are_looked_at_now(served: Running, connect: Callable[..., Client], tmp_path: Path) -> None:
    mirror = served.tenant().jobs.enqueue(str(tmp_path), every=timedelta(hours=1))
    with psycopg.connect(served.service.settings.database.admin_url or "") as connection:  # as it is between two looks
        connection.execute(
            "UPDATE kosmos.jobs SET state = 'scheduled', run_at = now() + '1 hour' WHERE tenant = %s AND kind = 'sync'",
            [served.tenant_name],
        )
    assert connect(scope="admin").reload() == [mirror]
    with pytest.raises(NotPermitted):
        connect().reload()


def test_feedback__is_of_a_passage(connect: Callable[..., Client]) -> None:
    client = connect()
    hit = client.search(QUESTION, 1).hits[0]
    feedback = client.feedback(
        "down", question=QUESTION, chunk_id=hit.chunk_id, comment="of last year", reason="outdated"
    )
    assert (feedback.subject, feedback.source, feedback.comment) == ("anna", hit.source, "of last year")
    assert client.feedback("up", question=QUESTION, chunk_id=hit.chunk_id).id == feedback.id
    for chunk_id in (hit.chunk_id, uuid.uuid4()):
        with pytest.raises(errors.NotFound, match="no such passage"):
            connect(tenant="globex").feedback("up", question=QUESTION, chunk_id=chunk_id)
    with pytest.raises(errors.NotFound, match="no such retrieval"):
        client.feedback("up", retrieval_id=uuid.uuid4())


def test_asynchronous_client__does_the_same(served: Running) -> None:
    async def ask() -> None:
        async with AsyncClient(served.url, served.token()) as client, asyncio.TaskGroup() as group:
            both = [group.create_task(_awaited(client)) for _ in range(2)]
        assert both[0].result() == both[1].result()

    async def _awaited(client: AsyncClient) -> str:
        result = await client.search(QUESTION, 1)
        events = [event async for event in client.stream_answer(QUESTION)]
        with pytest.raises(errors.NotFound):
            await client.document(uuid.uuid4())
        assert isinstance(events[-1], AnswerDone)
        return result.hits[0].source + events[-1].answer.text

    asyncio.run(ask())


def test_errors__are_those_of_the_library(connect: Callable[..., Client], served: Running) -> None:
    with pytest.raises(NotPermitted, match="needs the scope ingest"):
        connect().jobs()
    with pytest.raises(errors.RequestError, match=r"body\.k: Input should be less than or equal to 1000"):
        connect().search(QUESTION, 1001)
    with pytest.raises(NotAuthenticated), Client(served.url) as stranger:
        stranger.stats()
    with (
        pytest.raises(ServiceUnreachable, match=r"no response from http://127\.0\.0\.1:1"),
        Client("http://127.0.0.1:1") as unreachable,
    ):
        unreachable.stats()


class _Answers(HTTPServer):
    """A service that answers as it is told."""

    def __init__(self, *replies: tuple[int, dict[str, str], bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies = list(replies)
        self.calls = 0

    def __enter__(self) -> "_Answers":
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # head and body are sent apart: one would wait for the other
    server: _Answers

    def do_GET(self) -> None:
        self.server.calls += 1
        status, headers, content = self.server.replies.pop(0)
        self.send_response(status)
        for name, value in {"content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def _busy(kind: type[errors.KosmosError], seconds: str | None) -> tuple[int, dict[str, str], bytes]:
    problem = PROBLEMS[kind]
    headers = {} if seconds is None else {"retry-after": seconds}
    return problem.status, headers, encode_problem(problem, "come again")


STATS = b'{"total_documents": 1, "total_chunks": 2, "departments": {}, "embedding_dimension": 3}'
DONE: tuple[int, dict[str, str], bytes] = (200, {}, STATS)


def test_patience__is_had_as_often_as_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    busy = _busy(Overloaded, "2"), _busy(TooManyRequests, "7")
    with _Answers(*busy, DONE) as service, Client(service.url) as client:
        assert client.stats().total_chunks == 2
        assert (service.calls, slept) == (3, [2.0, 7.0])
    with _Answers(*busy, *busy) as service, Client(service.url, retries=1) as client:
        with pytest.raises(TooManyRequests, match="come again") as refused:
            client.stats()
        assert (service.calls, refused.value.retry_after_s) == (2, 7)


@pytest.mark.parametrize("seconds", ["61", "tomorrow", None])
def test_patience__has_an_end(seconds: str | None) -> None:
    with _Answers(_busy(Overloaded, seconds)) as service, Client(service.url) as client:
        with pytest.raises(Overloaded):
            client.stats()
        assert service.calls == 1


def test_file_and_places__of_a_document_are_for_its_readers(served: Running) -> None:
    data = write_pdf("Employees get twenty days of leave.")
    library = served.service.engine.sync_engine
    with opened(library.settings, {"ingestion.keep_originals": True}) as keeping:
        source = SourceDocument(source="hr/Urlaub für alle.pdf", data=data, acl=("department:hr",))
        keeping.tenant(served.tenant_name).ingest(source)
    with Client(served.url, served.token(departments=["hr"])) as client:
        (info,) = (document for document in client.documents().items if document.media_type == "application/pdf")
        (rectangle,) = client.rectangles(info.id, 0, 10, version=info.version)
        with pytest.raises(errors.RequestError, match="start"):
            client.rectangles(info.id, -1, 10)
    assert (rectangle,) == tuple(served.tenant(principals=["department:hr"]).rectangles(info.id, 0, 10))
    path = f"/v1/documents/{info.id}/original"
    with served.client(departments=["hr"]) as http:
        response = http.get(path)
        (text,) = (row["id"] for row in http.get("/v1/documents").json()["documents"] if row["source"] == "leave.md")
        assert http.get(f"/v1/documents/{text}/original").status_code == 404
    assert response.content == data
    assert response.headers["content-type"] == "application/pdf"
    assert response.headers["content-disposition"] == "attachment; filename*=UTF-8''Urlaub%20f%C3%BCr%20alle.pdf"
    assert response.headers["x-content-type-options"] == "nosniff"
    with served.client(departments=["sales"]) as http:
        assert http.get(path).status_code == 404
        assert http.get(f"/v1/documents/{info.id}/rectangles?start=0&end=9").status_code == 404


@pytest.mark.parametrize("kind", PROBLEMS)
def test_problem__becomes_its_error(kind: type[errors.KosmosError]) -> None:
    content = encode_problem(PROBLEMS[kind], "what was wrong", code="empty")
    with _Answers((PROBLEMS[kind].status, {}, content)) as service, Client(service.url) as client:
        with pytest.raises(errors.KosmosError, match="what was wrong") as refused:
            client.stats()
        assert type(refused.value) is kind


@pytest.mark.parametrize(
    ("reply", "response"),
    [
        ((502, {}, b"<html>Bad Gateway</html>"), "returned 502 without a problem"),
        ((404, {}, b'{"type": 1}'), "returned 404 without a problem"),
        ((500, {}, b"[1]"), "returned 500 without a problem"),
        ((200, {}, b"<html>Welcome</html>"), "cannot parse"),
        ((200, {}, b'{"total": 1}'), "cannot parse"),
        ((200, {}, b""), "cannot parse"),
    ],
)
def test_anything_else__is_no_service(reply: tuple[int, dict[str, str], bytes], response: str) -> None:
    with (
        _Answers(reply) as service,
        Client(service.url) as client,
        pytest.raises(ServiceUnreachable, match=response),
    ):
        client.stats()


def test_example_of_the_page__runs(served: Running, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "client.md").read_text(), re.DOTALL)
    result = code.replace("http://127.0.0.1:8000", served.url).replace("kosmos.acme.…", served.key("laptop", "admin"))
    exec(compile(result, "client.md", "exec"), {})
    out = capsys.readouterr().out
    assert "leave.md" in out
    assert "20 days" in out
