"""The life of vector indexes: when they are built and how they are replaced."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import SearchResult
from tests.integration.indexing.ann.worlds import (
    CHUNKS,
    FULL,
    QUESTIONS,
    assert_exact,
    assert_right,
    measure_recall,
    only,
    opened,
    physical,
    publish_world,
    select_vector_indexes,
)

# --- what is built when --------------------------------------------------------------------------------------------


def test_build__below_the_minimum_leaves_the_scan(settings: Settings, database: DatabaseSettings) -> None:
    with opened(settings, vector_min_chunks=CHUNKS + 1) as engine:
        info = only(engine.tenant("acme").indexes.build())
        assert (info.kind, info.state, info.rows_now, info.due) == ("none", "exact", CHUNKS, None)
        assert engine.tenant("acme").search("topic3", FULL).retrievers["dense"].plan == "exact scan"
    assert physical(database) == {}


def test_build__makes_what_is_due_and_measures_it(engine: Engine, exact: Engine, database: DatabaseSettings) -> None:
    scope = engine.tenant("acme")
    assert_exact(engine)
    assert only(scope.indexes.status()).due == "indexes.vector_min_chunks is 1,000"
    info = only(scope.indexes.build())
    assert (info.kind, info.state, info.rows, info.due) == ("ivfflat", "ready", CHUNKS, None)
    assert info.settings["lists"] == CHUNKS // 1_000
    assert 1 <= info.settings["probes"] <= info.settings["lists"]
    assert info.health["recall_at_10"] >= info.health["recall_target"] == 0.95
    assert info.health["queries"] > 0
    assert list(physical(database).values()) == [True]
    result = scope.search(QUESTIONS[0], FULL)
    assert result.retrievers["dense"].plan == "ivfflat"
    assert result.retrievers["dense"].read["lists"] == info.settings["probes"]
    assert_right(engine, "ivfflat")
    assert exact.tenant("acme").search(QUESTIONS[0], FULL).retrievers["dense"].plan == "exact scan"
    assert_exact(exact)


def test_build__again_changes_nothing(indexed: Engine, database: DatabaseSettings) -> None:
    before = physical(database)
    steps: list[str] = []
    indexed.tenant("acme").indexes.build(steps.append)
    assert (physical(database), steps) == (before, [])


@pytest.mark.parametrize(
    ("vector", "precision", "plan", "read"),
    [
        ("hnsw", "half", "hnsw", "ef_search"),
        ("ivfflat", "bit", "ivfflat on bits", "lists"),
        ("hnsw", "bit", "hnsw on bits", "ef_search"),
    ],
)
def test_build__of_each_kind_meets_the_recall_target(
    vector: str, precision: str, plan: str, read: str, settings: Settings
) -> None:
    with opened(settings, vector=vector, precision=precision) as engine:
        info = only(engine.tenant("acme").indexes.build())
        assert (info.kind, info.settings["precision"], info.due) == (vector, precision, None)
        assert info.health["recall_at_10"] >= 0.95
        assert read in engine.tenant("acme").search(QUESTIONS[0], FULL).retrievers["dense"].read
        assert_right(engine, plan)


def test_setting__that_changes_replaces_the_index(
    indexed: Engine, settings: Settings, exact: Engine, database: DatabaseSettings
) -> None:
    with opened(settings, vector="hnsw") as other:
        scope = other.tenant("acme")
        assert only(scope.indexes.status()).due == "indexes.vector is hnsw"
        assert scope.search(QUESTIONS[0], FULL).retrievers["dense"].plan == "ivfflat", "the old one serves until then"
        assert [(info.kind, info.due) for info in select_vector_indexes(scope.indexes.build())] == [("hnsw", None)]
        assert_right(other, "hnsw")
    with opened(settings, vector="hnsw", precision="bit") as other:
        assert only(other.tenant("acme").indexes.status()).due == "indexes.precision is bit"
    assert len(physical(database)) == 1
    assert "indexes.vector is none" in (select_vector_indexes(exact.tenant("acme").indexes.status())[0].due or "")
    assert only(exact.tenant("acme").indexes.build()).kind == "none"
    assert only(exact.tenant("acme").indexes.status()).due is None
    assert physical(database) == {}


def test_auto__keeps_ivfflat_where_it_is_fast(settings: Settings) -> None:
    with opened(settings, vector="auto", target_ms=10_000.0) as engine:
        info = only(engine.tenant("acme").indexes.build())
    assert info.kind == "ivfflat"
    assert "rejected" not in info.health


def test_auto__builds_hnsw_beside_and_keeps_the_faster(settings: Settings, database: DatabaseSettings) -> None:
    with opened(settings, vector="auto", target_ms=0.001) as engine:
        indexes = engine.tenant("acme").indexes
        first = only(indexes.build())
        assert (first.kind, first.due) == ("ivfflat", None)
        with psycopg.connect(database.admin_url or "") as connection:
            connection.execute("UPDATE kosmos.indexes SET created_at = created_at - interval '2 days'")
        assert "few chunks are published: hnsw is tried" in (only(indexes.status()).due or "")
        info = only(indexes.build())
        rejected = info.health["rejected"]
        assert {info.kind, rejected["kind"]} == {"ivfflat", "hnsw"}
        assert info.health["p50_ms"] <= rejected["p50_ms"]
        # Each was measured by itself: neither is so bad as a search of the other with its own setting would be.
        assert info.health["recall_at_10"] >= 0.95
        assert rejected["recall_at_10"] >= 0.95
        assert info.due is None
        assert len(physical(database)) == 1
        assert_right(engine, info.kind)


# --- drift -----------------------------------------------------------------------------------------------------------


def test_growth__to_twice_the_rows_makes_it_due(indexed: Engine) -> None:
    scope = indexed.tenant("acme")
    publish_world(indexed, "acme", range(CHUNKS, 2 * CHUNKS))
    assert only(scope.indexes.status()).due is None
    publish_world(indexed, "acme", range(2 * CHUNKS, 2 * CHUNKS + 1))
    assert only(scope.indexes.status()).due == f"grown from {CHUNKS:,} to {2 * CHUNKS + 1:,} rows"
    assert_right(indexed, "ivfflat", lambda _: True)
    info = only(scope.indexes.build())
    assert (info.settings["lists"], info.rows, info.due) == (6, 2 * CHUNKS + 1, None)
    assert_right(indexed, "ivfflat", lambda _: True)


def test_deletion__of_most_rows_makes_it_due(indexed: Engine) -> None:
    scope = indexed.tenant("acme")
    left = CHUNKS * 2 // 5  # 1,200
    assert scope.delete(f"default/{number}" for number in range(left, CHUNKS)) == CHUNKS - left
    assert only(scope.indexes.status()).due == f"shrunk from {CHUNKS:,} to {left:,} rows"
    assert_right(indexed, "ivfflat", lambda number: number < left)
    assert only(scope.indexes.build()).rows == left
    assert_right(indexed, "ivfflat", lambda number: number < left)
    scope.delete(f"default/{number}" for number in range(700, left))
    assert only(scope.indexes.status()).due is None, "kept down to half of what would have it built"
    scope.delete(f"default/{number}" for number in range(499, 700))
    assert only(scope.indexes.status()).due == "499 rows are too few, indexes.vector_min_chunks is 1,000"
    assert only(scope.indexes.build()).kind == "none"


def test_deletion__of_everything_leaves_nothing_to_measure(indexed: Engine) -> None:
    scope = indexed.tenant("acme")
    scope.delete(f"default/{number}" for number in range(CHUNKS))
    assert scope.search("topic3").incomplete_reason == "the tenant has no documents"
    scope.indexes.tune()
    assert only(scope.indexes.build()).kind == "none"


def test_tune__measures_again(indexed: Engine, settings: Settings) -> None:
    before = only(indexed.tenant("acme").indexes.status())
    with opened(settings, recall_target=1.0) as strict:
        info = only(strict.tenant("acme").indexes.tune())
    assert info.health["recall_target"] == 1.0
    assert info.settings["probes"] >= before.settings["probes"]
    assert info.checked_at
    assert before.checked_at
    assert info.checked_at > before.checked_at


# --- while it is built ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", ["ivfflat", "hnsw"])
def test_rebuild__is_served_by_the_old_index(vector: str, settings: Settings, database: DatabaseSettings) -> None:
    with opened(settings, vector=vector) as engine:
        engine.tenant("acme").indexes.build()
        before = physical(database)
        plans: set[str] = set()
        stop = threading.Event()

        def ask(question: str) -> SearchResult:
            result = engine.tenant("acme").search(question, FULL)
            assert result.returned == FULL
            plans.add(result.retrievers["dense"].plan)
            return result

        def recalls() -> list[float]:
            collected = []
            while not stop.is_set():
                collected.append(measure_recall(ask, questions=QUESTIONS[:20])[0])
            return collected

        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(recalls) for _ in range(2)]
            try:
                engine.tenant("acme").indexes.rebuild()
            finally:
                stop.set()
            shares = [share for item in asking for share in item.result()]
    assert np.mean(shares) >= 0.9
    assert plans == {vector}
    assert physical(database).keys().isdisjoint(before)
