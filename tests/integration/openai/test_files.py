"""Files, vector stores and batches, through the official SDK."""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from kosmos_rag import SourceDocument
from kosmos_rag.core.errors import RequestError
from kosmos_rag.openai import vector_stores
from kosmos_rag.storage.queue.uploads import CHUNK_BYTES
from tests.integration.openai.speaking import Speaking
from tests.lazy_imports import import_on_use

if TYPE_CHECKING:
    import openai
else:
    openai = import_on_use("openai")

LEAVE = b"# Leave\n\nAll employees get 20 days of paid annual leave per year.\n"
TRAVEL = b"# Travel\n\nTrains are booked by the office.\n"


def upload(client: "openai.OpenAI", name: str = "leave.md", data: bytes = LEAVE, **options: Any) -> str:
    return client.files.create(file=(name, data), purpose="assistants", **options).id


def test_file__is_stored_listed_read_and_deleted(speaking: Speaking) -> None:
    client = speaking.client()
    data = b"0123456789abcdef" * (CHUNK_BYTES // 8) + b"end"
    stored = client.files.create(file=("large.txt", io.BytesIO(data)), purpose="user_data")
    assert (stored.object, stored.bytes, stored.filename, stored.purpose) == (
        "file",
        len(data),
        "large.txt",
        "user_data",
    )
    assert client.files.retrieve(stored.id) == stored
    assert client.files.content(stored.id).read() == data
    other = upload(client)
    assert [item.id for item in client.files.list()] == [other, stored.id]
    assert [item.id for item in client.files.list(purpose="assistants")] == [other]
    assert [item.id for item in client.files.list(order="asc", limit=1)] == [stored.id, other]  # two pages
    deleted = client.files.delete(stored.id)
    assert (deleted.id, deleted.deleted) == (stored.id, True)
    for read in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            read(stored.id)
    assert [item.id for item in client.files.list()] == [other]


def test_store__makes_documents_of_files(speaking: Speaking) -> None:
    client = speaking.client()
    store = client.vector_stores.create(name="Handbook", metadata={"team": "hr"}, description="Rules")
    assert (store.name, store.metadata, store.status, store.file_counts.total) == (
        "Handbook", {"team": "hr"}, "completed", 0,
    )  # fmt: skip
    file_id = upload(client, "hr/leave.md")
    waiting = client.vector_stores.files.create(store.id, file_id=file_id, attributes={"year": 2026, "ok": True})
    assert (waiting.id, waiting.status, waiting.attributes) == (file_id, "in_progress", {"year": 2026, "ok": True})
    assert client.vector_stores.retrieve(store.id).status == "in_progress"
    speaking.work()
    result = client.vector_stores.files.poll(file_id, vector_store_id=store.id)
    assert (result.id, result.status, result.last_error) == (file_id, "completed", None)
    assert result.usage_bytes == len(LEAVE)
    assert client.vector_stores.retrieve(store.id).file_counts.completed == 1
    (text,) = client.vector_stores.files.content(file_id, vector_store_id=store.id)
    assert "20 days" in (text.text or "")
    # The collection has a document, with what the file is called.
    (document,) = speaking.running.service.engine.sync_engine.tenant(
        speaking.tenant_name, collection=store.id
    ).documents()
    assert document.source == f"hr/{file_id}-leave.md"
    assert (document.title, document.metadata) == ("Leave", {"year": 2026, "ok": True})
    changed = client.vector_stores.files.update(file_id, vector_store_id=store.id, attributes={"year": 2027})
    assert changed.attributes == {"year": 2027}
    for day in (1, 2, 3):
        attributes: dict[str, str | float | bool] = {"updated": day, "year": 2027}
        changed = client.vector_stores.files.update(file_id, vector_store_id=store.id, attributes=attributes)
        assert changed.attributes == attributes
    renamed = client.vector_stores.update(store.id, name="Rules")
    assert (renamed.name, renamed.metadata) == ("Rules", {"team": "hr"})
    client.vector_stores.files.delete(file_id, vector_store_id=store.id)
    assert list(client.vector_stores.files.list(store.id)) == []
    assert client.files.retrieve(file_id).filename == "hr/leave.md"


def test_deleted_file__leaves_all_stores_and_deleted_store_keeps_files(speaking: Speaking) -> None:
    client, admin = speaking.client(), speaking.client("admin", name="operator")
    files = [upload(client), upload(client, "travel.md", TRAVEL)]
    stores = [client.vector_stores.create(file_ids=files).id for _ in range(2)]
    speaking.work()
    client.files.delete(files[0])
    assert [[result.id for result in client.vector_stores.files.list(store)] for store in stores] == [[files[1]]] * 2
    assert speaking.tenant.search("annual leave").hits[0].source.endswith("travel.md")
    with pytest.raises(openai.PermissionDeniedError):
        client.vector_stores.delete(stores[0])
    assert admin.vector_stores.delete(stores[0]).deleted
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.retrieve(stores[0])
    assert client.files.retrieve(files[1]).id == files[1]
    assert [result.id for result in client.vector_stores.files.list(stores[1])] == [files[1]]


def test_lists__read_the_jobs_that_they_show(speaking: Speaking, monkeypatch: pytest.MonkeyPatch) -> None:
    client, recorded = speaking.client(), list[dict[str, Any]]()
    execute = psycopg.Cursor.execute

    def record(self: psycopg.Cursor, query: Any, params: Any = None, **options: Any) -> psycopg.Cursor:
        recorded.extend([params] if isinstance(params, dict) else ())
        return execute(self, query, params, **options)

    def read_jobs() -> list[int]:
        lengths = [len(params["ids"]) for params in recorded if "before" in params]
        recorded.clear()
        return lengths

    files = [upload(client, f"{number}.md") for number in range(5)]
    store = client.vector_stores.create(file_ids=files).id
    monkeypatch.setattr(psycopg.Cursor, "execute", record)
    assert client.vector_stores.files.retrieve(files[0], vector_store_id=store).status == "in_progress"
    assert [len(params["unfinished"]) for params in recorded if "unfinished" in params] == [1]
    assert read_jobs() == [1]
    assert client.vector_stores.retrieve(store).file_counts.in_progress == 5
    assert read_jobs() == []
    pages = client.vector_stores.files.list(store, limit=2)
    assert [file.status for file in pages.data] == ["in_progress"] * 2
    assert read_jobs() == [3]  # one more shows that there is a next page
    assert len({file.id for file in pages}) == 5
    recorded.clear()
    monkeypatch.setattr(vector_stores, "_FILTERED_BATCH", 2)
    assert list(client.vector_stores.files.list(store, filter="completed")) == []
    assert read_jobs() == [2, 2, 1]
    speaking.work()
    client.vector_stores.files.create(store, file_id=files[0])
    for order, expected in (("asc", files[1:]), ("desc", files[:0:-1])):
        listed = client.vector_stores.files.list(store, filter="completed", order=order, limit=1)  # type: ignore[arg-type]
        assert {file.id for file in listed} == set(expected)
    (again,) = client.vector_stores.files.list(store, filter="in_progress")
    assert again.id == files[0]
    assert client.vector_stores.files.list(store, filter="in_progress", limit=1).has_more is False


def test_batch__is_counted_cancelled_and_listed(speaking: Speaking) -> None:
    client = speaking.client()
    store = client.vector_stores.create(name="s").id
    files = [upload(client, f"{number}.md") for number in range(3)]
    broken = upload(client, "broken.pdf", b"%PDF-1.7 no such thing")
    batch = client.vector_stores.file_batches.create(store, file_ids=[*files[:2], broken], attributes={"n": 1})
    assert (batch.status, batch.file_counts.in_progress) == ("in_progress", 3)
    speaking.work()
    result = client.vector_stores.file_batches.poll(batch.id, vector_store_id=store)
    assert (result.status, result.file_counts.completed, result.file_counts.failed) == ("completed", 2, 1)
    failed = list(client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store, filter="failed"))
    assert [outcome.id for outcome in failed] == [broken]
    assert failed[0].last_error is not None
    assert failed[0].last_error.code in {"invalid_file", "unsupported_file"}
    listed = client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store, limit=1, order="asc")
    assert {outcome.id for outcome in listed} == {*files[:2], broken}
    second = client.vector_stores.file_batches.create(store, files=[{"file_id": files[2], "attributes": {"n": 2}}])
    cancelled = client.vector_stores.file_batches.cancel(second.id, vector_store_id=store)
    assert (cancelled.status, cancelled.file_counts.cancelled) == ("cancelled", 1)
    assert client.vector_stores.files.retrieve(files[2], vector_store_id=store).status == "cancelled"
    counts = client.vector_stores.retrieve(store).file_counts
    assert (counts.completed, counts.failed, counts.cancelled, counts.total) == (2, 1, 1, 4)


def test_lists__are_paged_both_ways(speaking: Speaking) -> None:
    client = speaking.client()
    stores = [client.vector_stores.create(name=str(number)).id for number in range(5)]
    newest_first = stores[::-1]
    assert [store.id for store in client.vector_stores.list(limit=2)] == newest_first
    assert [store.id for store in client.vector_stores.list(limit=2, order="asc")] == stores
    before = client.vector_stores.list(before=stores[0], limit=2)
    assert [store.id for store in before.data] == [stores[2], stores[1]]
    assert before.has_more
    first = client.vector_stores.list(before=newest_first[1], limit=2)
    assert ([store.id for store in first.data], first.has_more) == ([newest_first[0]], False)
    for wrong in ({"after": "vs_none"}, {"after": stores[0], "before": stores[1]}, {"limit": 0}):
        with pytest.raises(openai.BadRequestError):
            client.vector_stores.list(**wrong)


def test_collection__is_a_vector_store_under_its_name(speaking: Speaking) -> None:
    handbook = speaking.running.service.engine.sync_engine.tenant(speaking.tenant_name, collection="handbook")
    handbook.ingest(SourceDocument(source="leave.md", data=LEAVE, metadata={"year": 2026, "tags": ["a"]}))
    client = speaking.client()
    store = client.vector_stores.retrieve("handbook")
    assert (store.id, store.name, store.file_counts.completed) == ("handbook", "handbook", 1)
    (file,) = client.vector_stores.files.list("handbook")
    assert (file.status, file.attributes) == ("completed", {"year": 2026})
    assert client.vector_stores.files.retrieve(file.id, vector_store_id="handbook") == file
    client.vector_stores.files.delete(file.id, vector_store_id="handbook")
    assert handbook.documents() == []


def test_files__are_their_uploaders(speaking: Speaking) -> None:
    """OpenAI's interface shows a file to its uploader, administrators and named readers, and documents by their
    readers.

    A reader sees documents by their acl; a file is its uploader's, an administrator's, and its named readers'.
    """
    anna, ben = speaking.client(name="anna"), speaking.client(name="ben")
    hr = speaking.client("read", name="hr", principals=("department:hr",))
    admin = speaking.client("admin", name="operator")
    private = upload(anna)
    shared = upload(anna, "pay.md", b"# Pay\n\nSalaries are secret.\n", extra_body={"reader": ["department:hr"]})
    assert {file.id for file in anna.files.list()} == {file.id for file in admin.files.list()} == {private, shared}
    assert [file.id for file in ben.files.list()] == []
    assert [file.id for file in hr.files.list()] == [shared]
    for call in (ben.files.retrieve, ben.files.content, ben.files.delete):
        with pytest.raises(openai.NotFoundError):
            call(private)
    store = anna.vector_stores.create(file_ids=[private, shared]).id
    with pytest.raises(openai.NotFoundError):
        ben.vector_stores.files.create(store, file_id=private)
    with pytest.raises(openai.NotFoundError):
        ben.vector_stores.create(file_ids=[private])
    assert list(ben.vector_stores.files.list(store)) == []
    assert ben.vector_stores.retrieve(store).file_counts.total == 0
    speaking.work()
    visible = {name: {file.id for file in reader.vector_stores.files.list(store)}
               for name, reader in {"anna": anna, "ben": ben, "hr": hr}.items()}  # fmt: skip
    assert visible == {"anna": {private, shared}, "ben": {private}, "hr": {private, shared}}
    assert ben.vector_stores.retrieve(store).file_counts.total == 1
    with pytest.raises(openai.NotFoundError):
        ben.vector_stores.files.content(shared, vector_store_id=store)
    with pytest.raises(openai.PermissionDeniedError):
        upload(hr)
    with pytest.raises(openai.PermissionDeniedError):
        hr.vector_stores.create(name="x")


def test_other_tenant__sees_nothing(speaking: Speaking) -> None:
    """No file, vector store or batch of another tenant is found by its id."""
    client = speaking.client()
    file_id = upload(client)
    store = client.vector_stores.create(file_ids=[file_id]).id
    batch = client.vector_stores.file_batches.create(store, file_ids=[file_id]).id
    other = speaking.with_key(speaking.running.key("x", "admin", tenant_name=f"{speaking.tenant_name}-other"))
    assert list(other.files.list()) == []
    assert list(other.vector_stores.list()) == []
    calls: list[Any] = [
        lambda: other.files.retrieve(file_id),
        lambda: other.files.content(file_id),
        lambda: other.files.delete(file_id),
        lambda: other.vector_stores.retrieve(store),
        lambda: other.vector_stores.update(store, name="mine"),
        lambda: other.vector_stores.delete(store),
        lambda: other.vector_stores.files.list(store),
        lambda: other.vector_stores.files.create(store, file_id=file_id),
        lambda: other.vector_stores.files.retrieve(file_id, vector_store_id=store),
        lambda: other.vector_stores.files.update(file_id, vector_store_id=store, attributes={}),
        lambda: other.vector_stores.files.delete(file_id, vector_store_id=store),
        lambda: other.vector_stores.files.content(file_id, vector_store_id=store),
        lambda: other.vector_stores.file_batches.retrieve(batch, vector_store_id=store),
        lambda: other.vector_stores.file_batches.cancel(batch, vector_store_id=store),
        lambda: other.vector_stores.file_batches.list_files(batch, vector_store_id=store),
        lambda: other.vector_stores.file_batches.create(store, file_ids=[file_id]),
    ]
    for call in calls:
        with pytest.raises(openai.NotFoundError):
            call()


def test_errors__have_the_shape_of_the_sdk(speaking: Speaking) -> None:
    client = speaking.client()
    with pytest.raises(openai.AuthenticationError) as refused:
        speaking.with_key("sk-nothing").files.list()
    assert (refused.value.code, refused.value.type) == ("invalid_api_key", "authentication_error")
    with pytest.raises(openai.NotFoundError) as missing:
        client.files.retrieve("file-none")
    assert (missing.value.code, missing.value.type) == ("not_found", "invalid_request_error")
    store = client.vector_stores.create(name="s").id
    with pytest.raises(openai.BadRequestError, match="setting of the collection") as chunked:
        client.vector_stores.files.create(store, file_id=upload(client),
            chunking_strategy={
                "type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400},
            },
        )  # fmt: skip
    assert chunked.value.param == "chunking_strategy"
    for expiring in (
        lambda: client.vector_stores.create(expires_after={"anchor": "last_active_at", "days": 1}),
        lambda: client.vector_stores.update(store, expires_after={"anchor": "last_active_at", "days": 1}),
    ):
        with pytest.raises(openai.BadRequestError, match="do not expire here") as expired:
            expiring()
        assert expired.value.param == "expires_after"
    for attributes in ({"k": "x" * 513}, {"x" * 65: 1}, {str(number): 1 for number in range(17)}, {"a": [1]}):
        with pytest.raises(openai.BadRequestError, match="attributes"):
            client.vector_stores.files.create(store, file_id=upload(client), attributes=attributes)  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=("a.md", LEAVE), purpose="fine-tune")
    with pytest.raises(openai.BadRequestError, match="no field 'expires_after"):
        client.files.create(
            file=("a.md", LEAVE), purpose="assistants", expires_after={"anchor": "created_at", "seconds": 3600}
        )
    assert len(list(client.files.list())) == 5  # those that were refused left nothing


def _form(*parts: bytes, end: bytes = b"--b--\r\n") -> bytes:
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + end


FILE = b'content-disposition: form-data; name="file"; filename="a.md"\r\n\r\n' + LEAVE
PURPOSE = b'content-disposition: form-data; name="purpose"\r\n\r\nassistants'


def test_form__is_read_in_any_order_and_refused_where_it_is_malformed(speaking: Speaking) -> None:
    key = speaking.running.key("app", "ingest", "read", tenant_name=speaking.tenant_name)
    headers = {"authorization": f"Bearer {key}", "content-type": "multipart/form-data; boundary=b"}

    def send(body: bytes | Iterator[bytes], **changed: str) -> httpx.Response:
        url = f"{speaking.running.url}/openai/v1/files"
        return httpx.post(url, content=body, headers={**headers, **changed}, timeout=30)

    form = _form(FILE, PURPOSE)
    good = send(bytes([byte]) for byte in form)  # a byte at a time: every boundary is cut
    assert (good.status_code, good.json()["bytes"]) == (200, len(LEAVE))
    for body in (_form(PURPOSE), _form(FILE), _form(FILE, FILE, PURPOSE), form[:-20], b"", b"nothing", _form(end=b"")):
        refused = send(body)
        assert refused.status_code == 400, body
        assert refused.json()["error"]["message"]
    assert send(form, **{"content-type": "multipart/form-data"}).status_code == 400
    assert send(form, **{"content-type": "application/json"}).status_code == 400
    assert len(list(speaking.with_key(key).files.list())) == 1


def test_subject__of_the_name_of_administrators_sees_no_files(speaking: Speaking) -> None:
    """No subject gets the files of others through its own name, not even with the name `*`."""
    upload(speaking.client())
    token = speaking.running.signer.token(sub="*", tenant=speaking.tenant_name, scope="read ingest")
    with pytest.raises(openai.BadRequestError, match="means every uploader"):
        speaking.with_key(token).files.list()
    with pytest.raises(RequestError, match="means every uploader"):
        speaking.tenant.erase(subject="*")


def test_content__is_in_the_audit_log(speaking: Speaking) -> None:
    """The audit log records each read of a stored file."""
    client = speaking.client()
    speaking.tenant.collections.create("pay", preset="corporate")
    file_id = upload(client)
    client.files.content(file_id).read()
    (record,) = speaking.tenant.audit.find()
    assert (record.subject, record.question) == ("key:app", f"content of leave.md ({file_id})")
