"""The routes under /api with the corporate settings, over the documents of departments."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Running, Signer, parse_events, serving, with_tokens

QUERY = "How many days of annual leave do employees get?"
CHAT = {"query": QUERY, "model": "llama3.1"}
DEPARTMENTS = ("finance", "general", "hr", "it", "security")

pytestmark = pytest.mark.emptied_database


def _policies() -> list[SourceDocument]:
    return [
        SourceDocument(
            source=f"{name}/leave_{number}.txt",
            data=f"All employees of {name} get {20 + number} days of annual leave a year, by policy {number}.".encode(),
        )
        for name in DEPARTMENTS
        for number in range(3)
    ]


@pytest.fixture
def corporate(database: DatabaseSettings, signer: Signer, tmp_path: Path) -> Iterator[Running]:
    """A service whose whole process goes by the preset `corporate`."""
    path = tmp_path / "settings.yaml"
    path.write_text("rag: {preset: corporate}")
    settings = Settings.load(path).model_copy(update={"database": database})
    with (
        Engine(with_tokens(settings, signer), embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as running,
    ):
        yield running


def _sources(running: Running, body: dict[str, str], **claims: Any) -> list[str]:
    with running.client(**claims) as client, client.stream("POST", "/api/chat", json=body) as response:
        assert response.status_code == 200
        events = dict(parse_events(response.iter_lines()))
    passages = json.loads(events["sources"])["context"]["passages"]
    return [passage["citation"]["source"] for passage in passages]


def test_chat__uses_the_corporate_settings_of_the_process(corporate: Running) -> None:
    corporate.service.engine.sync_engine.tenant("acme").ingest(_policies())
    anybody = _sources(corporate, CHAT)
    assert len(anybody) == 5
    mine = _sources(corporate, CHAT, departments=["security"])
    assert len(mine) == 5
    texts = {f"security/leave_{number}.txt" for number in range(3)}
    assert texts <= set(mine)
    assert not texts <= set(anybody)


def test_chat__of_a_collection_uses_its_preset_over_that_of_the_process(corporate: Running) -> None:
    acme = corporate.service.engine.sync_engine.tenant("acme", collection="wide")
    corporate.service.engine.sync_engine.tenant("acme").collections.create("wide", preset="adr")
    acme.ingest(_policies())
    hits = acme.search(QUERY).hits
    assert not any(hit.signals for hit in hits)
    assert len(hits) == 5, "default_k is of the process: adr states none"


def test_chat__of_a_collection_that_requires_approval_gets_only_that(corporate: Running, tmp_path: Path) -> None:
    """Approval holds for chat."""
    (tmp_path / "approved.yaml").write_text("extends: corporate\nrag: {retrieval: {require_approved: true}}")
    corporate.service.engine.sync_engine.tenant("acme").collections.create(
        "policies", preset=tmp_path / "approved.yaml"
    )
    acme = corporate.service.engine.sync_engine.tenant("acme", collection="policies")
    acme.ingest(_policies())
    assert _sources(corporate, CHAT | {"collection": "policies"}) == []
    acme.update_metadata(["hr/leave_0.txt", "it/leave_1.txt"], {"approved": True})
    acme.update_metadata("it/leave_1.txt", {"superseded_by": "it/leave_2.txt"})
    assert _sources(corporate, CHAT | {"collection": "policies"}) == ["hr/leave_0.txt"]


def _stats(running: Running, **claims: Any) -> dict[str, Any]:
    with running.client(**claims) as client:
        response = client.get("/api/rag/stats")
    assert response.status_code == 200
    return response.json()


def test_stats__count_all_departments_where_they_are_preferred(corporate: Running) -> None:
    acme = corporate.service.engine.sync_engine.tenant("acme")
    acme.ingest(_policies())
    acme.ingest(SourceDocument(source="canteen.txt", data=b"The canteen of the company opens at eleven every day."))
    assert _stats(corporate, departments=["hr"]) == {
        "total_documents": 16,
        "total_chunks": 16,
        "departments": {"finance": 3, "general": 4, "hr": 3, "it": 3, "security": 3},
        "embedding_dimension": corporate.service.engine.sync_engine.embedder.dimensions,
    }


def test_stats__count_what_the_reader_may_read_where_departments_are_enforced(corporate: Running) -> None:
    engine = corporate.service.engine.sync_engine
    engine.tenant("acme").collections.create("policies", preset="corporate-enforced")
    scope = engine.tenant("acme", collection="policies")
    scope.ingest(_policies())
    below = SourceDocument(source="kb/hr/2026/leave.txt", data=b"Parental leave is six months for all employees.")
    document = SourceDocument(
        source="scan-7.txt",
        data=b"The audit of the ledgers was in May of this year.",
        metadata={"department": "finance"},
    )
    assert not scope.ingest([below, document]).failed
    everyone, hr, manager = (
        _stats(corporate, **claims) for claims in ({}, {"departments": ["hr"]}, {"roles": ["Manager"]})
    )
    assert everyone["departments"] == {"general": 3}
    assert hr["departments"] == {"general": 3, "hr": 4}
    assert manager["departments"] == {"finance": 4, "general": 3, "hr": 4, "it": 3, "security": 3}
    for result in (everyone, hr, manager):
        assert result["total_chunks"] == sum(result["departments"].values())
        assert result["total_documents"] == result["total_chunks"]


def test_chat__of_a_key_asks_its_default_collection(corporate: Running) -> None:
    engine = corporate.service.engine.sync_engine
    engine.tenant("acme").ingest(_policies())
    policy = SourceDocument(source="handbook.txt", data=b"By the handbook employees get 30 days of annual leave.")
    engine.tenant("acme", collection="handbook").ingest(policy)
    keys = engine.tenant("acme").api_keys
    key = corporate.key("bot", "read", default_collection="handbook")
    assert [info.default_collection for info in keys.infos()] == ["handbook"]
    rotated = keys.rotate(keys.infos()[0].id, overlap=timedelta(hours=1))
    for credentials in (key, rotated):
        assert _sources(corporate, CHAT, credentials=credentials) == ["handbook.txt"]
    sources = _sources(corporate, CHAT | {"collection": "default"}, credentials=key)
    assert len(sources) == 5
    assert "handbook.txt" not in sources
    with pytest.raises(RequestError, match="collection"):
        corporate.key("bad", "read", default_collection="No Such Name!")
