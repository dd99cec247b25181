"""Large uploads: they take little memory and no slots of questions, and leave nothing behind where they are cut."""

import asyncio
import hashlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psutil
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue.uploads import CHUNK_BYTES, UploadStore
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.variants import changed
from tests.waiting import eventually

MB = 1 << 20
UPLOADS, UPLOAD_MB = 6, 24

pytestmark = pytest.mark.emptied_database


def _body(megabytes: int) -> Iterator[bytes]:
    for number in range(16 * megabytes):
        yield number.to_bytes(4, "big") * 16_384


def _rows(running: Running) -> int:
    with psycopg.connect(running.service.settings.database.admin_url or "") as connection:
        row = connection.execute("SELECT count(*) FROM kosmos.uploads").fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def narrow(settings: Settings, signer: Signer) -> Iterator[Running]:
    """A service with one slot for questions and two places for uploads."""
    tokens = with_tokens(changed(settings, {"database.pool_size": 1}), signer, max_uploads=2, queue_timeout_s=0.5)
    with Engine(tokens, embedder=HashingEmbedder()) as engine, serving(engine, signer) as started:
        yield started


def test_uploads__at_once_take_little_memory_and_no_slots(settings: Settings, signer: Signer) -> None:
    """Large simultaneous uploads use little memory and no slots of questions."""
    two = with_tokens(changed(settings, {"database.pool_size": 2}), signer)
    process, highest, over = psutil.Process(), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            highest[0] = max(highest[0], process.memory_info().rss)

    def upload(running: Running, number: int) -> int:
        with running.client(scope="ingest") as client:
            return client.post(f"/v1/documents?source=d{number}", content=_body(UPLOAD_MB), timeout=120).status_code

    with Engine(two, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:
        engine.tenant("quiet").ingest(SourceDocument(source="a", data=b"Words."))
        assert upload(running, 0) == 202
        before = process.memory_info().rss
        with ThreadPoolExecutor(UPLOADS + 1) as threads, running.client(tenant="quiet") as client:
            watching = threads.submit(watch)
            futures = [threads.submit(upload, running, number) for number in range(UPLOADS)]
            searches: Counter[int] = Counter()
            while not all(item.done() for item in futures):
                searches[client.post("/v1/search", json={"question": "words"}).status_code] += 1
            statuses = [item.result() for item in futures]
            over.set()
            watching.result()
        assert statuses == [202] * UPLOADS
        assert set(searches) == {200}
        assert highest[0] - before < 64 * MB
        assert _rows(running) == (1 + UPLOADS) * UPLOAD_MB * MB // CHUNK_BYTES
        tenant = engine.tenant("acme")
        job = tenant.jobs.find(limit=1)[0]
        with engine.database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            data = UploadStore(connection, tenant.id).read(job.payload["upload"])
        assert hashlib.sha256(data).digest() == hashlib.sha256(b"".join(_body(UPLOAD_MB))).digest()


def test_upload__needs_no_slot(narrow: Running) -> None:
    event = threading.Event()
    asyncio.run_coroutine_threadsafe(narrow.service.limiter.run("loud", 1, event.wait, 20), narrow.loop)
    eventually(lambda: narrow.service.limiter.in_flight == 1)
    try:
        with narrow.client(scope="ingest") as client:
            assert client.post("/v1/documents?source=a", content=b"Words.").status_code == 202
    finally:
        event.set()


def test_upload__that_is_cut_leaves_nothing(narrow: Running) -> None:
    host, port = narrow.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        credentials = f"authorization: Bearer {narrow.signer.token(scope='ingest')}\r\n"
        head = f"POST /v1/documents?source=a HTTP/1.1\r\nhost: x\r\n{credentials}content-length: {8 * MB}\r\n\r\n"
        connection.sendall(head.encode())
        connection.sendall(b"x" * 4 * MB)
        eventually(lambda: _rows(narrow) > 0)
    eventually(lambda: _rows(narrow) == 0)
    assert not narrow.service.uploads._reserved


def test_uploads__are_bounded_and_another_tenant_still_gets_in(narrow: Running) -> None:
    over = threading.Event()

    def slow() -> Iterator[bytes]:
        yield b"Words."
        over.wait(20)

    def upload(tenant: str) -> int:
        with narrow.client(scope="ingest", tenant=tenant) as client:
            return client.post("/v1/documents?source=a", content=slow()).status_code

    with ThreadPoolExecutor(3) as threads, ExitStack() as stack:
        stack.callback(over.set)
        first = [threads.submit(upload, "loud") for _ in range(2)]
        eventually(lambda: narrow.service.uploads._reserved.total() == 2)
        with narrow.client(scope="ingest", tenant="loud") as client:
            refused = client.post("/v1/documents?source=b", content=b"Words.")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        with narrow.client(scope="ingest", tenant="quiet") as client:
            assert client.post("/v1/documents?source=b", content=b"Words.").status_code == 202
        over.set()
        assert [item.result() for item in first] == [202, 202]


def test_upload__with_a_used_key_leaves_one_copy(narrow: Running) -> None:
    headers = {"idempotency-key": "1"}
    with narrow.client(scope="ingest") as client:
        jobs = {
            client.post("/v1/documents?source=a", content=b"Words.", headers=headers).json()["id"] for _ in range(3)
        }
        other = client.post("/v1/documents?source=a", content=b"Other words.", headers=headers)
    assert len(jobs) == 1
    assert other.status_code == 422
    assert _rows(narrow) == 1


def test_upload__as_a_form_is_that_of_its_file(narrow: Running) -> None:
    file = {"file": ("leave.md", b"# Leave\n\nTwenty days.\n", "text/markdown")}
    with narrow.client(scope="ingest") as client:
        plain = client.post("/v1/documents", files=file)
        assert (plain.status_code, plain.json()["source"]) == (202, "leave.md")
        assert plain.headers["location"] == f"/v1/jobs/{plain.json()['id']}"
        fields = {"source": "hr/leave", "collection": "hr", "title": "Leave", "metadata": '{"year": 2026}'}
        response = client.post(
            "/v1/documents", files=file, data={**fields, "reader": ["department:hr", "role:auditor"]}
        )
        assert (response.status_code, response.json()["source"], response.json()["collection"]) == (
            202,
            "hr/leave",
            "hr",
        )
        mixed = client.post("/v1/documents?source=other&reader=role:auditor", files=file)
        assert mixed.json()["source"] == "other"
    tenant = narrow.service.engine.sync_engine.tenant("acme")
    payloads = {job.source: job.payload for job in tenant.jobs.find(limit=10) if job.source}
    assert payloads["leave.md"]["document"]["acl"] == [EVERYONE]
    assert payloads["other"]["document"]["acl"] == ["role:auditor"]
    payload = payloads["hr/leave"]
    assert payload["document"] == {
        "source": "hr/leave", "title": "Leave", "metadata": {"year": 2026}, "language": None,
        "acl": ["department:hr", "role:auditor"],
    }  # fmt: skip
    with narrow.service.engine.sync_engine.database.worker.transaction(tenant.id, [EVERYONE]) as connection:
        assert UploadStore(connection, tenant.id).read(payload["upload"]) == file["file"][1]


def test_upload__as_a_wrong_form_is_refused_and_leaves_nothing(narrow: Running) -> None:
    file = {"file": ("leave.md", b"Words.")}
    form = "multipart/form-data; boundary=b"
    cut = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nWords'
    long_header = b"--b\r\ncontent-disposition: " + b"a" * 65_536
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("", {"files": {"document": ("leave.md", b"Words.")}}, "there is no field 'document'"),
        ("", {"files": [("file", ("a", b"1")), ("file", ("b", b"2"))]}, "more than one file"),
        ("", {"files": file, "data": {"readers": "hr"}}, "there is no field 'readers'; use file, source"),
        ("?title=A", {"files": file, "data": {"title": "B"}}, "title is given in the query and in the form"),
        ("", {"files": file, "data": {"title": ["A", "B"]}}, "the form has the field title twice"),
        ("", {"files": file, "data": {"metadata": "[]"}}, "metadata is no JSON object"),
        ("", {"content": cut, "headers": {"content-type": form}}, "the form ends before its last part does"),
        ("", {"content": b"Words.", "headers": {"content-type": "multipart/form-data"}}, "no multipart form"),
        (
            "",
            {"content": b"", "headers": {"content-type": f"{form}{'b' * 300}"}},
            "the boundary of the form is malformed",
        ),
        ("", {"content": long_header, "headers": {"content-type": form}}, "the form is malformed"),
        ("", {"content": b"Words."}, "values are missing or invalid"),
    ]
    with narrow.client(scope="ingest") as client:
        for query, request, message in cases:
            refused = client.post(f"/v1/documents{query}", **request)
            assert refused.status_code == 422, message
            assert message in refused.json()["detail"]
    assert _rows(narrow) == 0


def test_upload__warns_if_a_file_replaces_another_one_of_its_name(narrow: Running) -> None:
    def send(data: bytes, **fields: str) -> str | None:
        with narrow.client(scope="ingest") as client:
            response = client.post("/v1/documents", files={"file": ("README.md", data)}, data=fields)
        assert response.status_code == 202
        warning: str | None = response.json()["warning"]
        return warning

    tenant = narrow.service.engine.sync_engine.tenant(narrow.tenant_name)
    assert send(b"Words of one team.") is None
    assert "it replaces another README.md" in (send(b"Words of another team.") or ""), "the first still waits"
    assert send(b"Words of a third team.", source="third/README.md") is None
    tenant.jobs.cancel([job.id for job in tenant.jobs.find()])
    tenant.ingest(SourceDocument(source="README.md", data=b"Words of one team."))
    assert "such as team/README.md" in (send(b"Words of another team.") or "")
    tenant.jobs.cancel([job.id for job in tenant.jobs.find()])
    assert send(b"Words of one team.") is None, "the same bytes replace nothing"


def test_upload__of_nothing_is_a_document_without_bytes(narrow: Running) -> None:
    with narrow.client(scope="ingest") as client:
        assert client.post("/v1/documents?source=a", content=b"").status_code == 202
    assert _rows(narrow) == 1


def test_memory__of_a_large_upload_is_back_within_a_minute(narrow: Running) -> None:
    process = psutil.Process()
    with narrow.client(scope="ingest") as client:
        client.post("/v1/documents?source=warm", content=b"Words.")
        before = process.memory_info().rss
        assert client.post("/v1/documents?source=a", content=_body(64), timeout=120).status_code == 202
    began = time.monotonic()
    eventually(lambda: process.memory_info().rss - before < 20 * MB, within_s=60)
    assert time.monotonic() - began < 60
