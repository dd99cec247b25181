"""The console without a browser: who gets which page, what is escaped, and whose posts are taken."""

import json
import re
import uuid
from datetime import timedelta
from html import unescape
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import PERMISSION_FEED, Filter, JobState
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.writing import JobWriter
from kosmos_rag.storage.tenants import tenant
from tests.conftest import Server
from tests.files import write_pdf
from tests.integration.apps.http.console_visits import OWN, extract_text, visitor
from tests.integration.apps.http.serving import Running, Signer, parse_events, serving, with_tokens
from tests.integration.variants import changed
from tests.integration.variants import opened as variant

QUESTION = "How many days of paid annual leave do full-time employees receive?"
HANDBOOK = b"# Leave\n\n## Annual\n\nAll full-time employees receive 20 days of paid annual leave per year.\n"
HOSTILE = "<script>alert(1)</script>"
BOARD = ("department:board",)


@pytest.fixture
def served(running: Running, tenant_name: str) -> Running:
    acme = running.tenant()
    acme.ingest(
        [
            SourceDocument(source="leave.md", data=HANDBOOK),
            SourceDocument(
                source=f'"{HOSTILE}.md',
                data=f"# Bonus {HOSTILE}\n\nThe bonus `<img src=x onerror=alert(2)>` is 3 percent.\n".encode(),
            ),
            SourceDocument(source="board.md", data=b"The board meets on Mondays.\n", acl=BOARD),
        ]
    )
    return running


def test_pages__are_for_whom_they_are(served: Running) -> None:
    with visitor(served, "admin") as administrator:
        for path in ("/", "/inspector", "/documents", "/jobs", "/health"):
            page = administrator.get(path)
            assert page.status_code == 200, path
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert page.headers["x-content-type-options"] == "nosniff"
            assert page.headers["referrer-policy"] == "same-origin"
            assert page.headers["cache-control"] == "no-store"
            assert "style=" not in page.text
            assert 'href="/inspector"' in page.text
        response = administrator.post("/inspector", data={"question": QUESTION, "depth": "20"})
        assert "Dense" in response.text
        assert "20 days" in extract_text(response)
        assets = re.findall(r'"(/assets/[^"]+)"', response.text)
        assert len(set(assets)) >= 4
        for asset in assets:
            assert "immutable" in administrator.get(asset).headers["cache-control"]
        assert administrator.get("/assets/other/console.css").status_code == 404
    with visitor(served, "read") as reader:
        assert reader.get("/").status_code == reader.get("/health").status_code == 200
        assert 'href="/inspector"' not in reader.get("/").text
        assert "Indexes" not in reader.get("/health").text
        for refused in (
            reader.get("/inspector"),
            reader.post("/inspector", data={"question": "?"}),
            reader.get("/jobs"),
        ):
            assert refused.status_code == 403
            assert "needs the scope" in refused.text


def test_signing_in__keeps_credentials_where_no_script_and_no_route_of_the_api_reads_them(served: Running) -> None:
    with httpx.Client(base_url=served.url, headers=OWN, trust_env=False, verify=False) as client:
        sent_away = client.get("/documents")
        assert (sent_away.status_code, sent_away.headers["location"]) == (303, "/sign-in?next=%2Fdocuments")
        assert client.get("/documents", headers={"accept": "application/json"}).status_code == 401
        for wrong in ("kosmos.acme.nothing", "a b; c", "", "x" * 5000):
            assert client.post("/sign-in", data={"credentials": wrong}).status_code == 401
        key = served.key("mine", "read")
        cookie = client.post("/sign-in", data={"credentials": key}).headers["set-cookie"]
        assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.lower().split("; "))
        assert "secure" not in cookie.lower()
        assert client.get("/documents").status_code == 200
        assert client.post("/v1/search", json={"question": QUESTION}).status_code == 401
        beyond = {**OWN, "host": "kosmos.example"}
        cookie = client.post("/sign-in", data={"credentials": key}, headers=beyond).headers["set-cookie"]
        assert cookie.startswith("__Host-")
        assert "; secure" in cookie.lower()
        assert client.post("/sign-out").headers["location"] == "/sign-in"
        assert client.get("/documents").status_code == 303


def test_posts__of_other_pages_are_refused(served: Running) -> None:
    with visitor(served, "admin") as client:
        same_origin = {"origin": served.url}
        for headers, status in (
            ({"sec-fetch-site": "cross-site"}, 403),
            ({"sec-fetch-site": "same-site"}, 403),
            ({"sec-fetch-site": "cross-site", **same_origin}, 403),
            ({"sec-fetch-site": "none"}, 403),
            ({"sec-fetch-site": "same-origin"}, 200),
        ):
            assert client.post("/", data={"question": QUESTION}, headers=headers).status_code == status, headers
        del client.headers["sec-fetch-site"]
        for headers, status in (
            ({}, 403),
            ({"origin": "null"}, 403),
            ({"origin": "https://elsewhere"}, 403),
            (same_origin, 200),
        ):
            for path in ("/", "/inspector"):
                assert client.post(path, data={"question": QUESTION}, headers=headers).status_code == status, headers
        for path in ("/sign-in", "/sign-out", "/documents?source=x", "/jobs/1/retry", "/jobs/1/cancel"):
            assert client.post(path).status_code == 403, path


def test_answer__comes_whole_without_scripts_and_leads_to_the_marked_words(served: Running) -> None:
    with visitor(served, "read") as client:
        page = client.post("/", data={"question": QUESTION})
        assert "20 days" in extract_text(page)
        link = unescape(re.findall(r'class="marker" href="([^"]+)"', page.text)[0])
        source = client.get(link)
        marked = unescape("".join(re.findall(r"<mark[^>]*>(.*?)</mark>", source.text)))
        assert marked == "All full-time employees receive 20 days of paid annual leave per year."
        assert '<p><mark id="cited">' in source.text
        assert "#" not in extract_text(source).partition("Annual")[0]
        again = client.get(link.replace("version=1", "version=7"))
        assert "<mark" not in again.text
        assert "citation is of version 7" in again.text
        assert client.post("/", data={"question": " "}).status_code == 422
        assert client.post("/", json={"question": QUESTION}).status_code == 422
        assert client.get(link.partition("?")[0], params={"line": 500}).status_code == 422
        assert client.get("/documents/nothing").status_code == 422


def test_answer__explains_its_scores_to_administrators_alone(served: Running) -> None:
    with visitor(served, "admin") as client:
        answered = client.post("/", data={"question": QUESTION})
        refused = client.post("/", data={"question": "Which exchange rate converts euros?"})
    assert "Scores of the units" in extract_text(answered)
    assert re.search(r"\d\.\d{3}\+\d\.\d{3}\+\d\.\d{3}\+0\.000\[1\]All full-time", extract_text(answered))
    assert "Why there is no answer" in extract_text(refused)
    assert "below rag.answer.threshold" in extract_text(refused)
    with visitor(served, "read") as client:
        for question in (QUESTION, "Which exchange rate converts euros?"):
            text = extract_text(client.post("/", data={"question": question}))
            assert "Scores of the units" not in text
            assert "rag.answer.threshold" not in text


def test_texts__are_never_markup(served: Running) -> None:
    """The console never interprets texts, titles and names of documents as markup."""
    with visitor(served, "admin") as client:
        arguments = {"question": f"How much is the bonus of {HOSTILE}?"}
        answered, inspected = client.post("/", data=arguments), client.post("/inspector", data=arguments)
        document = re.findall(r"/documents/[0-9a-f-]{36}", client.get("/documents").text)[0]
        accept = {"accept": "text/event-stream"}
        with client.stream("POST", "/", data=arguments, headers=accept) as response:
            events = dict(parse_events(response.iter_lines()))
        assert list(events)[-1] == "page"
        html = json.loads(events["page"])["html"]
        pages = [answered.text, inspected.text, client.get("/documents").text, client.get(document).text, html]
        for text in pages:
            assert HOSTILE not in text
            assert "<img" not in text
            assert "&lt;script&gt;" in text
        assert "onerror=alert(2)" in extract_text(answered)
        # What comes as it is written is JSON, which the page puts in as text.
        assert "alert(1)" in events["sources"]


def test_documents__of_others_are_not_there(served: Running) -> None:
    engine = served.service.engine.sync_engine
    other = engine.tenant(f"{served.tenant_name}-other")
    other.ingest(SourceDocument(source="theirs.md", data=b"Their secret.\n"))
    (foreign,) = other.documents()
    (board,) = [item for item in served.tenant(principals=BOARD).documents() if item.source == "board.md"]
    absent = "00000000-0000-4000-8000-000000000000"
    with visitor(served, "admin") as client:
        answers = [client.get(f"/documents/{item}") for item in (foreign.id, board.id, absent)]
        assert [answer.status_code for answer in answers] == [404] * 3
        assert len({answer.content for answer in answers}) == 1
        assert "board.md" not in client.get("/documents").text
    with visitor(served, "read", principals=BOARD) as client:
        assert "Mondays" in client.get(f"/documents/{board.id}").text


def test_document__shows_its_readers_to_those_who_may_know_and_its_chunks(served: Running) -> None:
    tenant = served.tenant(principals=["department:people"])
    text = "".join(f"# Part {number}\n\n{'Words of a part. ' * 60}\n\n" for number in (1, 2))
    acl = ("department:people", "user:secret")
    tenant.ingest(SourceDocument(source="people.md", data=text.encode(), acl=acl))
    (info,) = tenant.documents(filter=Filter(sources=("people.md",)))
    address = f"/documents/{info.id}"
    with visitor(served, "read", principals=["department:people"]) as reader:
        page = reader.get(address).text
        assert "<dd>department:people</dd>" in page
        assert "user:secret" not in page
        assert "chunk-start" not in page
        labels = re.findall(r"<b>chunk (\d+)</b>", reader.get(address, params={"chunks": 1}).text)
        assert labels == [str(number) for number in range(1, info.chunks + 1)]
    with visitor(served, "read", "ingest", principals=["department:people"]) as writer:
        assert "<dd>department:people, user:secret</dd>" in writer.get(address).text
    with visitor(served, "read") as stranger:
        assert stranger.get(address).status_code == 404


def test_pages_and_files_of_a_pdf__are_for_its_readers(served: Running) -> None:
    library = served.service.engine.sync_engine
    with variant(library.settings, {"ingestion.keep_originals": True}) as keeping:
        document = SourceDocument(source="rooms.pdf", data=write_pdf("The board meets in Room 7."), acl=BOARD)
        keeping.tenant(served.tenant_name).ingest(document)
    (info,) = served.tenant(principals=BOARD).documents(filter=Filter(sources=("rooms.pdf",)))
    paths = [f"/documents/{info.id}", f"/documents/{info.id}/pages/1", f"/documents/{info.id}/original"]
    with visitor(served, "read", principals=BOARD) as client:
        page, picture, original = (client.get(path) for path in paths)
        assert "<svg viewBox" in page.text
        assert picture.headers["content-type"] == "image/png"
        assert original.content.startswith(b"%PDF")
        assert client.get(f"/documents/{info.id}/pages/2").status_code == 422
    with visitor(served, "read") as client:
        assert [client.get(path).status_code for path in paths] == [404, 404, 404]


def test_uploads__become_jobs_that_can_be_called_off_and_tried_again(served: Running) -> None:
    """An upload in the console has the readers of the form, and an unknown field is refused."""
    with visitor(served, "read", "ingest") as client:
        json_only = {"accept": "application/json"}
        form = {"collection": "hr", "readers": " department:hr, department:board ,"}
        upload_form = client.get("/documents").text.partition('id="upload"')[2].partition("</form>")[0]
        assert {"files", *form} == set(re.findall(r'name="(\w+)"', upload_form))
        files = [("files", ("new.md", b"New.")), ("files", ("other.md", b"Other."))]
        nobody = client.post("/documents", data={"readers": " , "}, files=files, headers=json_only)
        assert nobody.status_code == 422, "it would be readable by everyone"
        response = client.post("/documents", data=form, files=files, headers=json_only)
        assert response.status_code == 202
        assert sorted((job["source"], job["collection"]) for job in response.json()["jobs"]) == [
            ("new.md", "hr"),
            ("other.md", "hr"),
        ]
        job = next(job["id"] for job in response.json()["jobs"] if job["source"] == "new.md")

        def state(*ids: str) -> list[str]:
            followed = client.get("/jobs/states", params={"id": list(ids)}, headers=json_only)
            return [job["state"] for job in followed.json()["jobs"]]

        assert state(job, str(uuid.uuid4())) == ["queued"]
        assert client.get("/jobs/states", headers=json_only).status_code == 422
        assert "new.md" in client.get("/jobs").text
        assert client.post(f"/jobs/{job}/cancel").headers["location"] == "/jobs"
        assert "new.md" in client.get("/jobs?state=cancelled").text
        client.post(f"/jobs/{job}/retry")
        assert state(job) == ["queued"]
        assert client.post(f"/jobs/{uuid.uuid4()}/retry").status_code == 404
    (job_info,) = served.tenant().jobs.find(ids=[job])
    assert job_info.payload["document"]["acl"] == ["department:board", "department:hr"]
    with visitor(served, "read") as client:
        assert client.post("/documents", files=[("files", ("new.md", b"New."))]).status_code == 403


@pytest.mark.own_database
def test_jobs__say_that_no_worker_runs(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kosmos_rag.storage.queue.queue.UNCLAIMED_S", -1.0)
    with visitor(served, "admin") as client:
        assert "No worker runs" not in client.get("/jobs").text
        client.post("/documents", files=[("files", ("first.md", b"First."))])
        assert "No worker runs: 1 job waits" in client.get("/jobs").text
    checks = {check.name: check for check in diagnose(served.service.engine.settings)}
    assert checks["worker"].detail == "no worker runs, and due jobs wait for one: 1; start kosmos-rag worker"


@pytest.mark.own_database
def test_jobs__name_the_documents_that_nobody_may_read(served: Running) -> None:
    unreadable = [
        SourceDocument(source=f"{name}.md", data=b"# Words", acl=(PERMISSION_FEED,)) for name in ("new", "a<b>")
    ]
    served.tenant().ingest(unreadable)
    with visitor(served, "admin") as client:
        assert "for no feed names readers: a&lt;b&gt;.md, new.md" in client.get("/jobs").text
    with visitor(served, "read") as client:
        assert client.get("/jobs").status_code == 403


@pytest.mark.own_database
def test_jobs__start_with_the_failed_ones_and_hide_upkeep(served: Running) -> None:
    engine = served.service.engine.sync_engine
    queue = Queue.open(engine.database, engine.settings.worker)
    with visitor(served, "admin") as client:
        client.post("/documents", files=[("files", ("first.pdf", b"First.")), ("files", ("second.md", b"Second."))])
        jobs = {job.source: job.id for job in served.tenant().jobs.find()}
        claimed = {job.id: job for job in queue.claim(9, kinds=[kinds.DOCUMENT], worker="test")}
        queue.fail(
            claimed[jobs["first.pdf"]],
            IngestionError("encrypted", "first.pdf has a password"),
            source="first.pdf",
            retry=False,
        )
        owner = tenant(served.tenant_name)
        with engine.database.worker.transaction(owner.id, ()) as connection:
            JobWriter(connection, owner).enqueue_periodic("default", {kinds.MAINTAIN: timedelta(hours=1)})
        page = client.get("/jobs").text
        failed, _, others = page.partition('id="others"')
        assert "first.pdf has a password" in failed
        assert "without a password, and ingest it again" in failed
        assert "first.pdf" not in others
        assert "second.md" in others
        assert "Maintain the indexes" not in page
        assert "Maintain the indexes" in client.get("/jobs?upkeep=true").text
        assert "second.md" not in client.get("/jobs?state=dead").text


def test_default_collection_of_a_key__holds_in_the_console(served: Running) -> None:
    served.tenant(collection="hr").ingest(SourceDocument(source="rules.md", data=b"Rules of HR."))
    with visitor(served, "admin", default_collection="hr") as client:
        page = client.get("/documents").text
        assert 'value="hr" list="collections"' in page
        assert '<option value="">all' not in page
        assert "rules.md" in page
        assert "leave.md" not in page
        client.post("/documents", data={"collection": ""}, files={"files": ("new.md", b"New.")})
        assert "new.md" in client.get("/jobs").text
        for path in ("/", "/inspector"):
            assert "<option selected>hr" in client.get(path).text
            assert "rules.md" in client.post(path, data={"question": "Which rules of HR?"}).text
    (job,) = served.tenant().jobs.find(collection="hr", states=[JobState.QUEUED])
    assert job.source == "new.md"


def test_uploads__without_scripts_lead_to_their_jobs(served: Running) -> None:
    with visitor(served, "admin") as client:
        response = client.post("/documents", data={"readers": ""}, files={"files": ("new.md", b"New.")})
        assert (response.status_code, response.headers["location"]) == (303, "/jobs")
        assert "new.md" in client.get("/jobs").text
        for nothing in ({"files": ("", b"")}, {"other": ("new.md", b"New.")}):
            refused = client.post("/documents", files=nothing)
            assert refused.status_code == 422
            assert "no file was chosen" in refused.text
        assert client.post("/documents", data={"files": "new.md"}).status_code == 422
        refused = client.post("/documents", data={"acl": "department:hr"}, files={"files": ("new.md", b"New.")})
        assert refused.status_code == 422, "a restriction that is not understood is not left out"
        broken = {"content-type": "multipart/form-data"}
        assert client.post("/documents", content=b"--x\r\nno", headers=broken).status_code == 400
        assert "new.md" in client.get("/jobs?state=queued").text


def test_visitors__land_where_they_may_go_and_can_leave_from_anywhere(served: Running) -> None:
    key = served.key("ingester", "ingest")
    with httpx.Client(base_url=served.url, headers=OWN, trust_env=False, verify=False) as client:
        assert client.post("/sign-in", data={"credentials": key}).headers["location"] == "/jobs"
        refused = client.get("/")
        assert refused.status_code == 403
        assert "Sign out" in refused.text
        assert 'href="/jobs"' in refused.text


def test_citation__of_a_version_that_had_more_lines_opens_the_one_of_now(served: Running) -> None:
    acme = served.tenant()
    acme.ingest(SourceDocument(source="long.md", data=b"A line of the handbook.\n\n" * 200))
    acme.ingest(SourceDocument(source="long.md", data=b"A line.\n"))
    (document,) = [item for item in acme.documents() if item.source == "long.md"]
    with visitor(served, "read") as client:
        opened = client.get(f"/documents/{document.id}", params={"version": 1, "line": 300, "span": "7000-7010"})
        assert opened.status_code == 200
        assert "citation is of version 1; this is version 2" in opened.text
        assert "<p>A line.</p>" in opened.text
        assert "<mark" not in opened.text
        assert client.get(f"/documents/{document.id}", params={"line": 300}).status_code == 422


def test_documents__are_found_by_parts_of_names_and_deleted_by_writers_alone(served: Running) -> None:
    with visitor(served, "read") as reader, visitor(served, "read", "ingest") as writer:
        outcome = extract_text(reader.get("/documents", params={"words": " LEAVE "}))
        assert "leave.md" in outcome
        assert HOSTILE not in outcome
        assert "has “moon” in its name" in extract_text(reader.get("/documents", params={"words": "moon"}))
        address = re.search(r"/documents/[0-9a-f-]{36}", reader.get("/documents", params={"words": "leave"}).text)
        assert address
        assert "Delete with all" not in reader.get("/documents").text
        assert reader.post(f"{address[0]}/delete").status_code == 403
        assert "Delete with all" in writer.get("/documents").text
        assert writer.post(f"{address[0]}/delete").headers["location"] == "/documents"
        assert "leave.md" not in extract_text(reader.get("/documents"))
        assert reader.get(address[0]).status_code == 404


def test_documents__are_sorted_by_the_heads_of_their_columns(served: Running) -> None:
    with visitor(served, "read") as client:
        page = client.get("/documents", params={"words": "e"}).text
        assert 'aria-sort="ascending"' in page
        [link] = re.findall(r'href="(/documents[^"]*sort=bytes[^"]*)"', page)
        largest = client.get(unescape(link)).text
        assert 'aria-sort="descending"' in largest
        assert 'name="sort" value="bytes"' in largest
        sizes = [document.bytes for document in served.tenant().documents(sort="bytes")]
        assert sizes == sorted(sizes, reverse=True)
        assert client.get("/documents", params={"sort": "title"}).status_code == 422


def test_documents__continue_on_the_next_page_in_their_order(running: Running, tenant_name: str) -> None:
    names = [f"note-{number:02}.txt" for number in range(52)]
    running.tenant().ingest([SourceDocument(source=name, data=f"Note {name}.\n".encode()) for name in names])
    with visitor(running, "read") as client:
        for query, rest in (("", ["note-50.txt", "note-51.txt"]), ("?sort=chunks&words=note", names[50:])):
            first = client.get(f"/documents{query}")
            assert first.status_code == 200
            assert "note-00.txt" in first.text
            more = unescape(re.findall(r'<a href="([^"]+)" rel="next">', first.text)[0])
            second = client.get(more)
            assert re.findall(r'class="location">(note-\d\d\.txt)<', second.text) == rest
            assert 'rel="next"' not in second.text


def test_health__shows_goals_and_what_misses_them(served: Running) -> None:
    served.tenant().search(QUESTION)
    with visitor(served, "admin") as client:
        text = extract_text(client.get("/health"))
        for output in ("goal: ready", "maintenance due", "goal: 0", "words of chunks without an index"):
            assert output in text, output
        assert "p99" not in text, "latencies are of all tenants; Grafana shows them to operators"
    with visitor(served, "read") as client:
        text = extract_text(client.get("/health"))
        assert "goal: ready" in text
        assert "maintenance due" not in text


@pytest.mark.usefixtures("tenant_name")
def test_operation_pages__without_the_worker_role_say_so(settings: Settings, signer: Signer) -> None:
    reading = changed(with_tokens(settings, signer), {"database.worker_url": None})
    with (
        Engine(reading, embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as served,
        httpx.Client(base_url=served.url, headers=OWN, timeout=60, trust_env=False, verify=False) as client,
    ):
        assert client.post("/sign-in", data={"credentials": signer.token(scope="admin")}).status_code == 303
        page = client.get("/health")
        assert page.status_code == 200
        assert "no credentials of the worker role" in page.text


def test_health__tells_of_a_database_that_is_away(
    settings: Settings, signer: Signer, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    hasty = changed(with_tokens(settings, signer), {"database.connect_timeout_s": 0.5})
    with (
        Engine(hasty, embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as served,
        httpx.Client(base_url=served.url, headers=OWN, timeout=60, trust_env=False, verify=False) as client,
    ):
        assert client.post("/sign-in", data={"credentials": signer.token(scope="admin")}).status_code == 303
        assert "not ready" not in client.get("/health").text
        name = urlsplit(settings.database.url).path[1:]
        with psycopg.connect(server.admin, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [name]
            )
        result = client.get("/health")
        assert result.status_code == 200
        assert "not ready" in result.text
        assert "Indexes" not in result.text
        reply = client.post("/", data={"question": QUESTION})
    assert reply.status_code == 503
    assert "The database is unavailable" in reply.text
    assert 'href="/health"' in reply.text
    assert name not in reply.text
    assert any("POST" in record.message and "cannot connect" in record.message for record in caplog.records), (
        "the log has the reason"
    )
