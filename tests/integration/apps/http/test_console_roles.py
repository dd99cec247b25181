"""Roles in the console: what a role may not do is neither shown nor allowed, and an administrator looks as a reader."""

import base64
import re
import uuid
from collections.abc import Iterable
from html import unescape

import psycopg
import pytest

from kosmos_rag import SourceDocument
from kosmos_rag.apps.http.app import create_app
from kosmos_rag.apps.http.console.pages import PageRoute
from kosmos_rag.apps.http.wings import load_http_wings
from tests.integration.apps.http.console_visits import extract_text, visitor
from tests.integration.apps.http.serving import Running

READ, INGEST, OPERATE, ADMIN = "read", "ingest", "operate", "admin"
WITHOUT_SCOPE = {
    "GET /assets/{version_hash}/{name}",
    "GET /docs",
    "GET /sign-in",
    "POST /sign-in",
    "GET /sign-in/openid",
    "GET /sign-in/callback",
    "POST /sign-out",
    "POST /view-as/end",
}
SCOPES = {
    "GET /": READ,
    "POST /": READ,
    "POST /feedback": READ,
    "GET /documents": READ,
    "GET /documents/{document_id}": READ,
    "GET /documents/{document_id}/pages/{page}": READ,
    "GET /documents/{document_id}/original": READ,
    "GET /health": f"{READ} {OPERATE}",
    "POST /documents": INGEST,
    "POST /documents/sample": INGEST,
    "POST /documents/{document_id}/delete": INGEST,
    "GET /jobs": f"{INGEST} {OPERATE}",
    "GET /jobs/states": f"{INGEST} {OPERATE}",
    "POST /jobs/{job_id}/cancel": f"{INGEST} {OPERATE}",
    "POST /jobs/{job_id}/retry": f"{INGEST} {OPERATE}",
    "GET /inspector": ADMIN,
    "POST /inspector": ADMIN,
    "GET /access": ADMIN,
    "GET /access/documents/{document_id}": ADMIN,
    "GET /access/export/{kind}": ADMIN,
    "POST /view-as": ADMIN,
}
"""The scopes of each route of the console, one of which is enough."""
SCOPES_OF_WINGS = {
    "GET /gaps": INGEST,
    "GET /evaluations": ADMIN,
    "GET /evaluations/questions": ADMIN,
    "POST /evaluations/questions/{candidate_id}": ADMIN,
    "GET /monitor": OPERATE,
    "GET /usage": OPERATE,
    "GET /usage.csv": OPERATE,
    "GET /webhooks": OPERATE,
    "POST /webhooks/{name}/pause": OPERATE,
    "POST /webhooks/{name}/resume": OPERATE,
    "POST /webhooks/{name}/redeliver/{sequence}": OPERATE,
}
LINKS = [link for wing in load_http_wings() for link in wing.links]
OPEN, HR = "open.md", "hr.md"


@pytest.fixture
def served(running_with_views: Running) -> Running:
    running_with_views.tenant().ingest(
        [
            SourceDocument(source=OPEN, data=b"# Open\n\nThe canteen opens at noon.\n"),
            SourceDocument(source=HR, data=b"# Leave\n\nThe leave is 20 days.\n", acl=("department:hr",)),
        ]
    )
    return running_with_views


def _list_routes(routes: Iterable[object]) -> set[str]:
    pages = [route for route in routes if isinstance(route, PageRoute)]
    return {f"{method} {route.path}" for route in pages for method in route.methods or ()}


OF_WINGS = {route for wing in load_http_wings() for router in wing.routers for route in _list_routes(router.routes)}


def test_routes__of_the_console_have_a_scope(running: Running) -> None:
    routes = _list_routes(create_app(running.service).routes)
    assert routes - OF_WINGS == WITHOUT_SCOPE | set(SCOPES)
    assert set(SCOPES_OF_WINGS) == OF_WINGS


def _is_allowed(route: str, scopes: tuple[str, ...]) -> bool:
    """Return whether one of the scopes opens a route."""
    needed = (SCOPES | SCOPES_OF_WINGS)[route].split()
    return ADMIN in scopes or not set(needed).isdisjoint(scopes)


@pytest.mark.parametrize("scopes", [(READ,), (INGEST,), (READ, INGEST), (OPERATE,), (ADMIN,)], ids="+".join)
def test_role__is_shown_what_it_may_do_and_refused_the_rest(served: Running, scopes: tuple[str, ...]) -> None:
    """A caller without the scope of a page is refused its route, and sees no link and no form that leads there."""
    with visitor(served, *scopes) as client:
        for route in SCOPES | SCOPES_OF_WINGS:
            method, _, path = route.partition(" ")
            if not _is_allowed(route, scopes):
                response = client.request(method, re.sub(r"\{\w+\}", str(uuid.UUID(int=1)), path))
                assert response.status_code == 403, route
        paths = ["/", "/documents", "/jobs", "/health", "/access", *(link.path for link in LINKS)]
        pages = [client.get(path) for path in paths]
        allowed = [page for page in pages if page.status_code == 200]
        assert allowed
        links = {link for page in allowed for link in re.findall(r'href="(/[^"#]*)"', page.text)}
        for link in sorted(links):
            assert client.get(unescape(link)).status_code in {200, 303}, link
        forms = {form for page in allowed for form in re.findall(r'method="post" action="([^"]*)"', page.text)}
        for action in sorted(forms - {"/sign-out"}):
            name = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "{document_id}", action)
            assert f"POST {name}" in WITHOUT_SCOPE or _is_allowed(f"POST {name}", scopes), action


def test_operator__sees_jobs_and_figures_and_no_text(served: Running) -> None:
    """The scope operate opens jobs, usage, monitor, webhooks and health, and no passage and no question."""
    tenant = served.tenant(subject="anna")
    tenant.search("How long is the leave?")
    tenant.feedback("down", question="How long is the leave?", comment="It is wrong.")
    with visitor(served, OPERATE) as client:
        assert client.get("/sign-in").headers.get("location", "/jobs") == "/jobs"
        pages = {path: client.get(path) for path in ("/jobs", "/usage", "/monitor", "/webhooks", "/health")}
        assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)
        texts = " ".join(map(extract_text, pages.values()))
        assert "Indexes" in extract_text(pages["/health"])
        for secret in ("canteen", "leave", "20 days", "wrong"):
            assert secret not in texts
    with served.client(served.key("operator", OPERATE)) as client:
        refused = {
            ("POST", "/v1/search"): {"query": "canteen"},
            ("POST", "/v1/context"): {"query": "canteen"},
            ("POST", "/v1/answer"): {"query": "canteen"},
            ("POST", "/api/chat"): {"query": "canteen"},
            ("POST", "/openai/v1/chat/completions"): {},
            ("GET", "/openai/v1/files"): None,
            ("GET", "/v1/documents"): None,
            ("GET", "/v1/events"): None,
            ("GET", "/v1/access?principal=everyone"): None,
            ("POST", "/v1/documents?source=a.md"): None,
            ("POST", "/v1/webhooks"): {"name": "a", "url": "https://example.org"},
            ("DELETE", "/v1/webhooks/a"): None,
            ("GET", "/scim/v2/Users"): None,
        }
        for (method, path), body in refused.items():
            assert client.request(method, path, json=body).status_code == 403, path
        for path in ("/v1/jobs", "/v1/usage", "/v1/webhooks"):
            assert client.get(path).status_code == 200, path


def test_operator__sees_jobs_that_failed_without_their_errors(served: Running) -> None:
    """A model server repeats the text that it refuses, and the error of the job quotes it."""
    jobs = served.tenant().jobs
    failed, cancelled = (jobs.enqueue(SourceDocument(source=name, data=b"x")) for name in ("a.md", "b.md"))
    jobs.cancel([cancelled])
    with psycopg.connect(served.service.engine.sync_engine.database.admin_conninfo, autocommit=True) as connection:
        connection.execute(
            "UPDATE kosmos.jobs SET state = 'dead', finished_at = now(), code = 'text_refused', "
            "error = 'refused: salary of Ann' WHERE id = %s",
            [failed],
        )
    key = served.key("operators", OPERATE)
    with served.client(key) as client, visitor(served, OPERATE) as console, visitor(served, INGEST) as manager:
        for path in ("/v1/jobs", f"/v1/jobs/{failed}"):
            assert "salary" not in client.get(path).text
            assert "text_refused" in client.get(path).text
        assert "salary" not in console.get("/jobs").text + console.get(f"/jobs/states?id={failed}").text
        assert "salary of Ann" in manager.get("/jobs").text
        # A cancelled job may be of a document that somebody has deleted.
        assert client.post(f"/v1/jobs/{cancelled}/retry").status_code == 403
        assert f"/jobs/{cancelled}/retry" not in console.get("/jobs").text
        assert f"/jobs/{cancelled}/retry" in manager.get("/jobs").text
        assert client.post(f"/v1/jobs/{failed}/retry").json() == {"jobs": [str(failed)]}


def test_view__shows_what_the_reader_may_read_and_changes_nothing(served: Running) -> None:
    with visitor(served, ADMIN) as client:
        before = client.get("/documents").text
        assert OPEN in before
        assert HR not in before
        response = client.post("/view-as", data={"reader": "anna", "principals": " department:hr , "})
        assert response.headers["location"] == "/documents"
        documents = client.get("/documents")
        assert HR in documents.text
        assert "You see what anna may read" in extract_text(documents)
        assert "Upload" not in documents.text
        assert "20 days" in extract_text(client.post("/", data={"question": "How long is the leave?"}))
        for method, path in (("GET", "/inspector"), ("GET", "/jobs"), ("POST", "/documents/sample")):
            refused = client.request(method, path)
            assert refused.status_code == 403
            assert "you look as anna: end the view first" in refused.text
        assert client.post("/feedback", data={"rating": "up", "question": "?"}).status_code == 403
        assert client.post("/view-as/end").headers["location"] == "/access"
        assert HR not in client.get("/documents").text
        assert client.get("/inspector").status_code == 200


def test_view__is_in_the_audit_log_under_the_name_of_the_administrator(served: Running) -> None:
    """Each page that an administrator opens as another reader is in the audit log, under the administrator's name."""
    assert not served.service.settings.rag.audit.enabled
    with visitor(served, ADMIN) as client:
        client.get("/documents")
        client.post("/view-as", data={"reader": "anna", "principals": "department:hr"})
        client.get("/documents")
        client.post("/", data={"question": "How long is the leave?"})
        (document_id,) = served.tenant(principals=("department:hr",)).document_ids([HR])
        client.get(f"/documents/{document_id}")
    audit = served.tenant().audit
    records = audit.find()
    texts = [record.question for record in reversed(records)]
    assert texts[:4] == ["POST /view-as as anna", "GET /documents as anna", "POST / as anna", "How long is the leave?"]
    assert f"GET /documents/{document_id} as anna" in texts
    assert {record.subject for record in records} == {"key:console"}
    assert {record.principals for record in records} == {("everyone", "user:anna", "department:hr")}
    assert [access.kind for access in audit.list_document_access(HR)] == ["search", "answer"]


def test_view__is_off_unless_the_settings_allow_it(running: Running, served: Running) -> None:
    view = {"reader": "anna", "principals": "department:hr"}
    with visitor(served, ADMIN) as client, visitor(running, ADMIN) as other:
        client.post("/view-as", data=view)
        other.cookies.set("kosmos-view", client.cookies["kosmos-view"], domain="127.0.0.1")
        assert "You see what" in client.get("/documents").text
        assert "You see what" not in other.get("/documents").text
        client.post("/view-as/end")
        assert "View the console as this reader" in client.get("/access", params=view).text
        assert "View the console as this reader" not in other.get("/access", params=view).text
        assert other.post("/view-as", data=view).status_code == 403


def test_export__is_of_one_document_or_one_reader(served: Running) -> None:
    with visitor(served, ADMIN) as client:
        for query, status in (
            ({"document_id": str(uuid.UUID(int=1))}, 404),
            ({}, 422),
            ({"document_id": str(uuid.UUID(int=1)), "reader": "anna"}, 422),
        ):
            assert client.get("/access/export/csv", params=query).status_code == status


def test_view__is_for_administrators_alone(served: Running) -> None:
    with visitor(served, ADMIN) as administrator, visitor(served, READ, INGEST) as client:
        administrator.post("/view-as", data={"reader": "anna", "principals": "department:hr"})
        assert client.post("/view-as", data={"reader": "anna", "principals": "department:hr"}).status_code == 403
        client.cookies.set("kosmos-view", administrator.cookies["kosmos-view"], domain="127.0.0.1")
        page = client.get("/documents")
        assert HR not in page.text
        assert "You see what" not in page.text
        assert administrator.post("/view-as", data={"reader": "b", "principals": "a"}).status_code == 403
        administrator.post("/view-as/end")
        for values in ({"reader": "", "principals": "a"}, {"reader": "a", "principals": "x" * 5000}):
            assert administrator.post("/view-as", data=values).status_code == 422


@pytest.mark.parametrize(
    "view",
    [b"malformed", b"{}", b'{"reader": "", "principals": "a"}', b"[" * 2500],
    ids=["no JSON", "no reader", "one text", "nested"],
)
def test_view__that_cannot_be_read_is_refused_and_ended(served: Running, view: bytes) -> None:
    value = base64.urlsafe_b64encode(view).decode().rstrip("=")
    with visitor(served, ADMIN) as administrator:
        administrator.cookies.set("kosmos-view", value, domain="127.0.0.1", path="/")
        page = administrator.get("/documents")
        assert page.status_code == 422
        assert "the view has ended" in extract_text(page)
        assert OPEN not in page.text
        assert administrator.get("/documents").status_code == 200
