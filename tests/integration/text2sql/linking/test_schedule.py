"""Schemas that workers bring collections up to, again and again."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from kosmos_rag import Engine
from kosmos_rag.core.types import JobInfo, JobState
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.storage.queue import queue
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.text2sql.catalog.sources import SchemaSource
from kosmos_rag.text2sql.job_kinds import JOBS, SCHEMA
from kosmos_rag.text2sql.jobs import enqueue_sync
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.worker.handlers import EngineJobRunner
from tests.integration.worker.working import open_channel, receive_all

SHOP = SchemaSource(kind="database", location="SHOP_URL")

pytestmark = pytest.mark.emptied_database


@pytest.fixture(autouse=True)
def woken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every taking look for what is due."""
    monkeypatch.setattr(queue, "REQUEUE_INTERVAL_S", 0.0)


@pytest.fixture
def scope(engine: Engine) -> Tenant:
    """A collection that goes by the preset."""
    engine.tenant("acme").collections.create("schema", preset="schema")
    return engine.tenant("acme", collection="schema")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A database that is described, changed by statements."""
    path = tmp_path / "shop.db"
    monkeypatch.setenv("SHOP_URL", f"sqlite:///{path}")

    def run(statement: str) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)

    return run


@pytest.fixture
def work(engine: Engine) -> Iterator[Callable[[], None]]:
    """Do what is in the queue about schemas, as a worker's process does."""
    jobs = Queue.open(engine.database, engine.settings.worker)
    supervisor, channel = open_channel(jobs)
    working = EngineJobRunner(engine, JOBS)

    def run() -> None:
        working.run(jobs.claim(8, kinds=[SCHEMA], worker="test"), channel)
        receive_all(supervisor)

    yield run
    working.close()


def _columns(scope: Tenant) -> set[str]:
    return {column.name for schema in SchemaGrounding(scope).schemas() for column in schema.tables[0].columns}


def _job(scope: Tenant) -> JobInfo:
    (result,) = [info for info in scope.jobs.find() if info.kind == SCHEMA]
    return result


def test_a_schema__is_read_again_and_again(
    scope: Tenant, shop: Callable[[str], None], work: Callable[[], None]
) -> None:
    shop("CREATE TABLE goods (id INTEGER PRIMARY KEY, colour TEXT)")
    enqueue_sync(scope.jobs, SHOP, every=timedelta(seconds=0.001))
    work()
    assert _columns(scope) == {"id", "colour"}
    shop("ALTER TABLE goods ADD COLUMN weight REAL")
    work()
    assert _columns(scope) == {"id", "colour", "weight"}
    assert (_job(scope).state, _job(scope).error) == (JobState.SCHEDULED, None)


def test_recipes_written_by_hand__stay_where_a_schedule_names_none(
    scope: Tenant, shop: Callable[[str], None], work: Callable[[], None], tmp_path: Path
) -> None:
    shop("CREATE TABLE goods (id INTEGER PRIMARY KEY, colour TEXT)")
    file = tmp_path / "recipes.yaml"
    file.write_text("recipes: [{slug: red, title: red goods, text: x, pattern: status, tables: [goods]}]")
    enqueue_sync(scope.jobs, replace(SHOP, recipes=str(file)))
    work()
    shop("ALTER TABLE goods ADD COLUMN weight REAL")
    enqueue_sync(scope.jobs, SHOP)
    work()
    assert _columns(scope) == {"id", "colour", "weight"}
    assert "query_recipe:shop.red" in scope.sources()
    file.write_text("recipes: []")
    enqueue_sync(scope.jobs, replace(SHOP, recipes=str(file)))
    work()
    assert "query_recipe:shop.red" not in scope.sources()


def test_a_database_that_is_away__leaves_what_was_there_and_is_asked_again(
    scope: Tenant, shop: Callable[[str], None], work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop("CREATE TABLE goods (id INTEGER PRIMARY KEY, colour TEXT)")
    enqueue_sync(scope.jobs, SHOP, every=timedelta(seconds=0.001))
    work()
    monkeypatch.setenv("SHOP_URL", "sqlite:////nowhere/shop.db")
    work()
    job = _job(scope)
    assert (job.state, job.code) == (JobState.SCHEDULED, "unavailable")
    assert "there is no such file" in str(job.error)
    assert _columns(scope) == {"id", "colour"}


def test_readers_of_a_schedule__are_those_of_its_documents(
    engine: Engine, scope: Tenant, shop: Callable[[str], None], work: Callable[[], None]
) -> None:
    shop("CREATE TABLE wages (id INTEGER PRIMARY KEY, amount REAL)")
    enqueue_sync(scope.jobs, SHOP, acl=("role:hr",))
    work()
    assert SchemaGrounding(scope).schemas() == []
    assert _columns(engine.tenant("acme", principals=("role:hr",), collection="schema")) == {"id", "amount"}


def test_the_same_source__has_one_job_that_takes_what_is_newer(scope: Tenant, tmp_path: Path) -> None:
    first = enqueue_sync(scope.jobs, SHOP, every=timedelta(hours=1))
    recipes = SchemaSource(kind="database", location="SHOP_URL", recipes=str(tmp_path / "recipes.yaml"))
    assert enqueue_sync(scope.jobs, recipes, every=timedelta(hours=2)) == first
    assert enqueue_sync(scope.jobs, replace(recipes, samples=("*",)), every=timedelta(hours=2)) == first
    assert _job(scope).every_s == 7200.0


def test_what_cannot_be_read__is_named_and_not_tried_at_once(
    scope: Tenant, work: Callable[[], None], tmp_path: Path
) -> None:
    (tmp_path / "broken.json").write_text("{}")
    enqueue_sync(scope.jobs, SchemaSource(kind="json", location=str(tmp_path / "broken.json")))
    work()
    assert _job(scope).state is JobState.DEAD
    assert "broken.json" in str(_job(scope).error)
