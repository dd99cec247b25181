"""Passes of workers over a web site."""

from pathlib import Path

import pytest

from kosmos_rag import Engine, Settings
from tests.integration.variants import changed
from tests.integration.worker.working import Work
from tests.unit.ingestion.sources.web_server import Server

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return changed(settings, {"ingestion.urls.allowed_hosts": ["127.0.0.1"], "ingestion.urls.allow_private": True})


def test_page_that_is_gone__is_removed_by_the_second_pass_of_each_collection(
    engine: Engine, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scopes = [engine.tenant("acme", collection=name) for name in ("a", "b")]
    with Server.run() as server:
        for path, body in (("/", b'<p>Home</p><a href="/leave">Leave</a>'), ("/leave", b"<p>Thirty days.</p>")):
            server.replies[path] = lambda handler, body=body: handler.send(200, body, Content_Type="text/html")
        documents = []
        for number in range(3):
            for scope in scopes:
                scope.jobs.enqueue({"kind": "site", "url": server.url(), "delay_s": 0})
                work()
                documents.append(len(scope.documents()))
            if number == 0:
                del server.replies["/leave"]
    assert documents == [2, 2, 2, 2, 1, 1]


def test_login__that_is_refused_is_the_event_of_an_expired_source(
    engine: Engine, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sitemap is refused before the first page, and is not the source."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DOCS_COOKIE", "session=1")
    scope = engine.tenant("acme")
    scope.events.start()
    with Server.run() as server:
        for path in ("/", "/sitemap.xml"):
            server.replies[path] = lambda handler: handler.send(401)
        scope.jobs.enqueue(
            {"kind": "site", "url": server.url(), "delay_s": 0, "headers_env": {"Cookie": "DOCS_COOKIE"}}
        )
        work()
    (event,) = scope.events.read()[0]
    assert (event.type, event.data["source"], event.data["failures"]) == ("source.expired", server.url(), 2)
    assert [failure.code for failure in scope.jobs.list_refused_sources()] == ["no_permission"]
