"""Passes of a worker over a Confluence with its permissions."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, Tenant
from kosmos_rag.core.errors import SourceError
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.ingestion.sources import atlassian
from kosmos_rag.ingestion.sources.confluence import ConfluenceSource
from kosmos_rag.ingestion.sources.pass_items import PassItems
from tests.integration.variants import changed
from tests.integration.worker.working import CountingEmbedder, Work, assert_adds_up, counts, last_run, run_listing
from tests.unit.ingestion.sources.atlassian_site import TOKEN, Parameters, fail
from tests.unit.ingestion.sources.confluence_site import ConfluenceSite, Space

pytestmark = pytest.mark.emptied_database
ANN, BEN = "group:staff", "user:ben@example.org"
ALL = {"10", "11", "11/att1/bands.txt"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return changed(settings, {"ingestion.urls.allowed_hosts": ["127.0.0.1"], "ingestion.urls.allow_private": True})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfluenceSite]:
    monkeypatch.setenv("SITE_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(atlassian, "_WAITS_S", (0.01,))
    site = ConfluenceSite(is_cloud=True, groups={"staff": {"ann", "ben"}, "hr": {"ben"}})
    site.put("10", title="Leave", body="<p>Thirty days of leave.</p>")
    site.put("11", title="Pay", body="<p>Bands of pay.</p>", parent="10", groups={"hr"})
    site.put("att1", type="attachment", parent="11", title="bands.txt", data=b"Band one.")
    with site.serve():
        yield site


@pytest.fixture
def access(site: ConfluenceSite) -> dict[str, Any]:
    connection = {"url": site.url, "token_env": "SITE_TOKEN", "deployment": "cloud"}
    return {"kind": "confluence", "name": "kb", **connection, "spaces": ["ENG"]}


@pytest.fixture
def spec(access: dict[str, Any]) -> dict[str, Any]:
    """A source that lists everything in each pass."""
    return {**access, "full_every_s": 0, "permissions": access}


def _sources(engine: Engine, *principals: str) -> set[str]:
    documents = engine.tenant("acme", principals=principals).documents()
    return {document.source.removeprefix("confluence://kb/") for document in documents}


def test_page__that_is_restricted_and_then_changed_is_secret_before_the_feed(
    engine: Engine,
    scope: Tenant,
    work: Work,
    site: ConfluenceSite,
    access: dict[str, Any],
    spec: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scope.jobs.enqueue(spec)
    work()
    assert counts(last_run(scope)) == {"new": 3}
    assert (_sources(engine, ANN), _sources(engine, BEN)) == ({"10"}, {"11", "11/att1/bands.txt"})
    assert engine.tenant("acme", principals=(BEN,)).search("bands of pay").hits[0].title == "Pay"
    site.content["10"].groups = {"hr"}
    site.put("10", body="<p>Salaries by name.</p>")
    with monkeypatch.context() as without_feed:
        without_feed.setattr(type(scope.jobs), "_enqueue_permissions", lambda *_, **__: None)
        scope.jobs.enqueue(spec)
    work()
    assert counts(last_run(scope)) == {"changed": 1, "unchanged": 2}
    assert (_sources(engine, ANN), _sources(engine, BEN)) == (set(), {"11", "11/att1/bands.txt"})
    scope.jobs.enqueue_permissions(access)
    work()
    assert _sources(engine, BEN) == ALL
    assert_adds_up(engine, scope)


def test_page__that_is_opened_keeps_its_former_text_from_new_readers(
    engine: Engine, scope: Tenant, work: Work, site: ConfluenceSite, access: dict[str, Any], spec: dict[str, Any]
) -> None:
    """What was deleted before the page was opened is in the stored text until the next pass of the source."""
    scope.jobs.enqueue(spec)
    work()
    assert _sources(engine, ANN) == {"10"}
    site.content["11"].groups = set()
    site.put("11", body="<p>Nothing about bands.</p>")
    for _ in range(2):
        scope.sync_permissions(access)
        # The file of the page is as it was.
        assert _sources(engine, ANN) == {"10", "11/att1/bands.txt"}
    scope.jobs.enqueue(spec)
    work()
    assert _sources(engine, ANN) == ALL
    hits = engine.tenant("acme", principals=(ANN,)).search("bands").hits
    assert "Nothing about bands." in {hit.text for hit in hits}
    assert_adds_up(engine, scope)


def test_page__whose_time_somebody_has_changed_gets_new_readers_of_its_present_text_alone(
    engine: Engine, scope: Tenant, work: Work, site: ConfluenceSite, access: dict[str, Any], spec: dict[str, Any]
) -> None:
    scope.jobs.enqueue(spec)
    work()
    for value in ("2020-01-01", None):
        scope.update_metadata("confluence://kb/11", {"updated": value})
    # The key with the time of the source: it cannot be given, and is not among what a client reads and writes back.
    scope.update_metadata("confluence://kb/11", {"kosmos:source_updated": "2026-11-26T10:00:01.000Z"})
    reader = engine.tenant("acme", principals=(ANN, BEN))
    metadata = [document.metadata for document in reader.documents() if document.source.endswith("/11")]
    metadata += [hit.metadata for hit in reader.search("bands").hits if hit.source.endswith("/11")]
    assert len(metadata) > 1
    assert not any("updated" in key for values in metadata for key in values)
    assert scope.update_metadata("confluence://kb/11", {**metadata[0], "stage": "new"}) == 1
    site.content["11"].groups = set()
    scope.sync_permissions(access)
    assert "11" in _sources(engine, ANN)
    site.content["11"].groups = {"hr"}
    scope.sync_permissions(access)
    site.content["11"].groups = set()
    site.put("11", body="<p>Nothing about bands.</p>")
    scope.sync_permissions(access)
    assert "11" not in _sources(engine, ANN)
    scope.jobs.enqueue(spec)
    work()
    reader = engine.tenant("acme", principals=(ANN,))
    [page] = [document for document in reader.documents() if document.source.endswith("/11")]
    assert page.metadata["updated"] == "2026-11-26T10:00:01.000Z"
    assert "stage" not in page.metadata
    assert "11" in _sources(engine, ANN)


def test_attachment__that_was_stored_without_its_time_gets_new_readers_once_it_is_read_again(
    engine: Engine,
    scope: Tenant,
    work: Work,
    site: ConfluenceSite,
    access: dict[str, Any],
    spec: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier releases stored attachments so."""
    update = ConfluenceSource._update

    def update_without_time(source: ConfluenceSource, items: PassItems, *values: Any) -> None:
        update(source, items, *values)
        for item in list(items):
            items.put(item._replace(value={key: item.value[key] for key in item.value.keys() - {"updated"}}))

    with monkeypatch.context() as patched:
        patched.setattr(ConfluenceSource, "_update", update_without_time)
        scope.jobs.enqueue(spec)
        work()
    assert _sources(engine, ANN) == {"10"}
    site.content["11"].groups = set()
    scope.sync_permissions(access)
    assert _sources(engine, ANN) == {"10", "11"}
    scope.jobs.enqueue(spec)
    work()
    assert _sources(engine, ANN) == ALL


def test_space__that_becomes_private_is_readable_by_nobody_else_after_a_pass(
    engine: Engine,
    scope: Tenant,
    work: Work,
    site: ConfluenceSite,
    access: dict[str, Any],
    spec: dict[str, Any],
    embedder: CountingEmbedder,
) -> None:
    site.content["10"].groups = {"hr"}
    scope.jobs.enqueue(spec)
    work()
    assert _sources(engine, BEN) == ALL
    embedded = embedder.texts
    site.spaces["ENG"] = Space(id="1", groups=set(), users={"eve"})
    site.faults.append(fail("spaces/1/permissions", status=503))
    with pytest.raises(SourceError):
        scope.sync_permissions(access)
    site.faults.clear()
    scope.jobs.enqueue_permissions(access)
    work()
    assert _sources(engine, ANN, BEN, "everyone") == set()
    # It is closed to the account too: the feed names nobody, and the documents stay.
    del site.spaces["ENG"]
    scope.jobs.enqueue(spec)
    work()
    assert _sources(engine, ANN, BEN, "everyone", "user:eve@example.org") == set()
    assert len(scope.sources()) == 3
    assert embedder.texts == embedded
    assert_adds_up(engine, scope)


def test_expired_token__is_named_by_the_doctor_and_stored_nowhere(
    engine: Engine, scope: Tenant, work: Work, site: ConfluenceSite, access: dict[str, Any]
) -> None:
    site.token = "another"
    scope.jobs.enqueue({**access, "acl": ["staff"]})
    work()
    problems = [check.detail for check in diagnose(engine.settings) if check.name == "tenant acme" and not check.ok]
    assert any("refuses the token in SITE_TOKEN; renew it" in problem for problem in problems)
    with psycopg.connect(engine.settings.database.admin_url or "") as connection:
        jobs = connection.execute("SELECT payload::text FROM kosmos.jobs").fetchall()
        assert jobs
        assert not any(TOKEN in payload for (payload,) in jobs)


def test_missing_pages__are_confirmed_while_progress_is_reported(
    engine: Engine,
    scope: Tenant,
    work: Work,
    site: ConfluenceSite,
    access: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = {**access, "full_every_s": 0, "acl": ["everyone"]}
    scope.jobs.enqueue(spec)
    work()
    del site.content["10"]

    def answer_late(path: str, _parameters: Parameters) -> None:
        if "/pages/10" in path:
            time.sleep(1.5)

    site.faults.append(answer_late)
    monkeypatch.setattr("kosmos_rag.worker.channel.HEARTBEAT_S", 0.05)
    scope.jobs.enqueue(spec)
    assert len(run_listing(engine)) >= 15
    assert "10" not in _sources(engine, "everyone")
