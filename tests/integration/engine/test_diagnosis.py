"""`diagnose`: what it says about connections and jobs."""

import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from kosmos_rag import Settings, SourceDocument
from kosmos_rag.core.errors import ConfigError, DatabaseUnavailable, NodeUnavailable
from kosmos_rag.engine.diagnosis import _database, compare_clocks, diagnose
from kosmos_rag.engine.job_kinds import NO_WINGS, JobKind, LazyFunction, WingJobs
from kosmos_rag.storage.placement import ClusterNode
from tests.integration.variants import changed, opened


def test_dead_jobs__are_named_by_tenant_with_their_most_frequent_code(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {}) as engine:
        jobs = engine.tenant(tenant_name).jobs
        for number in range(3):
            jobs.enqueue(SourceDocument(source=f"document-{number}", data=b"words"))
    with psycopg.connect(settings.database.admin_url or "") as connection:
        connection.execute(
            "UPDATE kosmos.jobs SET state = 'dead', finished_at = now(), code = "
            "CASE payload ->> 'source' WHEN 'document-0' THEN 'encrypted' ELSE 'corrupt' END "
            "WHERE tenant = %s AND kind = 'document'",
            [tenant_name],
        )
    (check,) = [check for check in diagnose(settings) if check.name == f"tenant {tenant_name}"]
    assert check.ok
    command = f"`kosmos-rag jobs list -t {tenant_name} --state dead` shows them"
    assert check.detail == f"warning: 3 dead jobs, most often because of corrupt; {command}"


def test_warnings__of_a_tenant_do_not_wait_for_those_of_another_one(settings: Settings, tenant_name: str) -> None:
    names = [f"{tenant_name}-{letter}" for letter in "ab"]
    with opened(settings, {}) as engine:
        for name in names:
            engine.tenant(name).jobs.enqueue(SourceDocument(source="document", data=b"words"))
        unreachable_id = engine.tenant(names[0]).id

    def list_warnings(_connection: psycopg.Connection, tenant_id: uuid.UUID, _settings: Settings) -> list[str]:
        if tenant_id == unreachable_id:
            raise NodeUnavailable("its node is down")
        return ["it is slow"]

    kind = JobKind(
        name="document", description="", create_handler=LazyFunction("builtins:dict"), list_warnings=list_warnings
    )
    checks = {check.name: check for check in diagnose(settings, wings=WingJobs(kinds=(kind,)))}
    of_tenants = [checks[f"tenant {name}"] for name in names]
    assert [(check.ok, check.detail) for check in of_tenants] == [
        (False, "its node is down"),
        (True, "warning: it is slow"),
    ]


def test_warnings__of_further_tenants_do_not_wait_for_a_server_that_is_lost(
    settings: Settings, tenant_name: str
) -> None:
    """Each of hundreds of tenants would wait for a connection."""
    with opened(settings, {}) as engine:
        for letter in "ab":
            engine.tenant(f"{tenant_name}-{letter}").jobs.enqueue(SourceDocument(source="document", data=b"words"))

    def list_warnings(_connection: psycopg.Connection, _tenant_id: uuid.UUID, _settings: Settings) -> list[str]:
        raise DatabaseUnavailable("the server is down")

    kind = JobKind(
        name="document", description="", create_handler=LazyFunction("builtins:dict"), list_warnings=list_warnings
    )
    checks = diagnose(settings, wings=WingJobs(kinds=(kind,)))
    assert [check.ok for check in checks if check.detail == "the server is down"] == [False]


def test_dead_jobs__that_cannot_be_counted_are_a_problem(settings: Settings) -> None:
    checks = _database(changed(settings, {"database.statement_timeout_ms": 1000}), None, NO_WINGS)
    assert next(check for check in checks if check.name == "clock").ok
    with psycopg.connect(settings.database.admin_url or "") as connection:
        connection.execute("LOCK TABLE kosmos.jobs IN ACCESS EXCLUSIVE MODE")
        rest = {check.name: check.ok for check in checks}
    assert (rest["dead jobs"], rest["sources"]) == (False, False)


def test_unreachable_writer__is_one_problem_that_names_its_setting(settings: Settings) -> None:
    """Each check of jobs and sources repeated it, and named database.url."""
    nowhere = changed(settings, {"database.worker_url": "postgresql://kosmos_worker@127.0.0.1:1/kosmos"})
    (problem,) = [check for check in diagnose(nowhere) if "127.0.0.1" in check.detail]
    assert (problem.name, problem.ok) == ("role that writes", False)
    assert "check that the server runs and that database.worker_url names it" in problem.detail


def test_unreachable_administrator__is_a_problem(settings: Settings) -> None:
    nowhere = changed(settings, {"database.admin_url": "postgresql://postgres@127.0.0.1:1/kosmos"})
    checks = {check.name: check for check in diagnose(nowhere)}
    assert checks["role that reads"].ok
    assert not checks["role that migrates"].ok
    assert "database.admin_url names it" in checks["role that migrates"].detail


def test_node_that_is_down__leaves_jobs_and_sources_to_check(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = ClusterNode(id=2, address="db2:5432", available=False)
    monkeypatch.setattr("kosmos_rag.storage.pool.cluster_nodes", lambda _: (down,))
    checks = {check.name: check.ok for check in diagnose(settings)}
    assert (checks["node 2"], checks["clock"], "worker" in checks) == (False, True, True)


def test_clock__of_the_server_is_compared(settings: Settings) -> None:
    (check,) = [check for check in diagnose(settings) if check.name == "clock"]
    assert (check.ok, check.detail) == (True, "as that of the database")


@pytest.mark.parametrize(
    ("apart_s", "message"), [(-29, None), (29, None), (-31, "31 s behind that"), (31, "31 s ahead of that")]
)
def test_clock__may_be_half_a_minute_off(apart_s: int, message: str | None) -> None:
    server = datetime(2026, 11, 27, tzinfo=UTC)
    here = server + timedelta(seconds=apart_s)
    if message is None:
        assert compare_clocks(server, here, here) == "as that of the database"
    else:
        with pytest.raises(ConfigError, match=message):
            compare_clocks(server, here, here)


def test_clock__that_waited_long_for_the_server_is_not_off() -> None:
    server = datetime(2026, 11, 27, tzinfo=UTC)
    minute = timedelta(minutes=1)
    assert compare_clocks(server, server - minute, server + minute) == "as that of the database"
