"""Erasure: evaluations and runs of the monitor lose each name of a place in an erased document, and no other."""

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.monitor.labels import StaleLabel
from kosmos_rag.evaluation.monitor.records import MonitorState
from kosmos_rag.evaluation.monitor.verdict import MonitorVerdict, add_stale_labels
from kosmos_rag.evaluation.offline.questions import Location
from kosmos_rag.models.testing.hashing import HashingEmbedder

SOURCE = "people/ada_l.md"
OTHERS = ["b.md", "b.md#people/ada_l.md", "ada", "https://x/b.md:1-3", "ada_l.mdx"]


@pytest.fixture
def acme(loaded_settings: Settings, shared_database: DatabaseSettings, tenant_name: str) -> Iterator[Tenant]:
    settings = loaded_settings.model_copy(update={"database": shared_database})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        yield engine.tenant(tenant_name)


@pytest.fixture
def admin(shared_database: DatabaseSettings) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shared_database.admin_url or "", autocommit=True) as connection:
        yield connection


def _insert_results(admin: psycopg.Connection, tenant: Tenant, names: Sequence[str]) -> None:
    """Insert an evaluation of one question, whose places are judged and ranked."""
    evaluation = uuid4()
    admin.execute(
        "INSERT INTO kosmos.evaluations VALUES "
        "(%s, %s, now(), 'a', 's', 'x', NULL, '{everyone}', 10, 1, false, '{}', '{}', 'h', 'v', '{}', 1)",
        (tenant.id, evaluation),
    )
    admin.execute(
        "INSERT INTO kosmos.evaluation_results VALUES (%s, %s, 'q1', 'who is paid?', %s, %s, '{}', '{}', NULL, NULL)",
        (tenant.id, evaluation, json.dumps(dict.fromkeys(names, 1)), list(names)),
    )


@pytest.mark.parametrize("selector", [{"source": SOURCE}, {"source": "people/*"}, {"metadata": ("employee", "ada")}])
def test_places__lose_a_section_lines_and_the_end_of_a_source(
    acme: Tenant, admin: psycopg.Connection, selector: dict[str, Any]
) -> None:
    """A question file may name a section, lines, and the end of a source without its extension."""
    acme.ingest([SourceDocument(source=SOURCE, data=b"Ada is paid.", metadata={"employee": "ada"})])
    places = [
        Location(source=source, section=section, lines=lines).name
        for source in (SOURCE, "people/ada_l", "ada_l.md", "ada_l")
        for section in (None, "Salary #1 of ada_l")
        for lines in (None, (1, 3))
    ]
    labels = [
        StaleLabel(question="q (1)", location=Location(source=source), problem="gone").describe()
        for source in ("ada_l", f"{SOURCE}#a (b)", "b.md")
    ]
    verdict = MonitorVerdict(state=MonitorState.OK, reason="recall@5 0.900 (alert below 0.8)", figures={})
    reasons = [add_stale_labels(verdict, [label]).reason for label in labels]
    _insert_results(admin, acme, [*places, *OTHERS])
    for reason in reasons:
        admin.execute(
            "INSERT INTO kosmos.monitor_runs VALUES (%s, %s, now(), 'questions', 'ok', %s, NULL, '{}', '{}', 1)",
            (acme.id, uuid4(), reason),
        )
    report = acme.erase(**selector)
    assert (report.erased["evaluation_results"], report.erased["monitor_runs"]) == (1, 2)
    query = "SELECT judged, ranking FROM kosmos.evaluation_results WHERE tenant_id = %s"
    ((judged, ranking),) = admin.execute(query, [acme.id]).fetchall()
    assert judged == dict.fromkeys(OTHERS, 1)
    assert ranking == ["erased"] * len(places) + OTHERS
    query = "SELECT reason FROM kosmos.monitor_runs WHERE tenant_id = %s"
    assert sorted(reason for (reason,) in admin.execute(query, [acme.id])) == ["erased", "erased", reasons[2]]


def test_places__of_a_document_that_is_called_as_the_end_of_an_erased_one_stay(
    acme: Tenant, admin: psycopg.Connection
) -> None:
    acme.ingest([SourceDocument(source=source, data=b"Read me.") for source in ("a/read.me", "read.me")])
    _insert_results(admin, acme, ["a/read.me", "read.me", "read"])
    acme.erase(source="a/read.me")
    query = "SELECT ranking FROM kosmos.evaluation_results WHERE tenant_id = %s"
    assert admin.execute(query, [acme.id]).fetchall() == [(["erased", "read.me", "erased"],)]


def test_places__of_a_document_that_was_deleted_before_lose_its_name(acme: Tenant, admin: psycopg.Connection) -> None:
    acme.ingest([SourceDocument(source="b.md", data=b"Bob is paid.")])
    _insert_results(admin, acme, [f"{SOURCE}#Salary", "ada_l"])
    assert acme.erase(source=SOURCE).erased == {"evaluation_results": 1}
