"""What decides about vector indexes without a database: how they are planned, measured, chosen and found wanting."""

import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.sections import IndexSettings
from kosmos_rag.indexing.ann import _candidate_settings, plan_settings
from kosmos_rag.indexing.catalog import READY, IndexRecord
from kosmos_rag.indexing.recall import DEPTH, Recall, _random_words, measure_recall, smallest_sufficient_setting
from kosmos_rag.indexing.status import needs_vector_index, rebuild_reason
from kosmos_rag.retrieval.dense import estimate_selectivity
from kosmos_rag.retrieval.snapshot import NO_ROUTING, CollectionStats, Snapshot, VectorIndex

SETTINGS = Settings.load().indexes


def _measured(setting: int, recall: float, *, at_100: float | None = None, error: float = 0.0) -> Recall:
    return Recall(
        setting=setting,
        recall_at_10=recall,
        recall_at_100=recall if at_100 is None else at_100,
        standard_error=error,
        p50_ms=float(setting),
    )


def _entry(kind: str = "ivfflat", rows: int = 10_000, **settings: Any) -> IndexRecord:
    return IndexRecord(id=uuid.uuid4(), kind=kind, state=READY, rows=rows, settings={"precision": "half", **settings})


# --- choosing a setting --------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60).map(sorted), st.floats(0, 1))
def test_smallest_sufficient_setting__is_what_a_look_at_all_of_them_finds(recalls: list[float], target: float) -> None:
    requests: list[int] = []

    def measure(setting: int) -> Recall:
        requests.append(setting)
        return _measured(setting, recalls[setting - 1])

    settings = list(range(1, len(recalls) + 1))
    result = smallest_sufficient_setting(target, settings, measure)
    meeting = [setting for setting in settings if recalls[setting - 1] >= target]
    assert result.setting == (meeting[0] if meeting else settings[-1])
    assert len(requests) <= len(settings).bit_length() + 1


@pytest.mark.parametrize(
    ("measured", "meets"),
    [
        (_measured(1, 0.95), True),
        (_measured(1, 0.949), False),
        (_measured(1, 0.96, at_100=0.93), True),
        (_measured(1, 1.0, at_100=0.92), False),
        (_measured(1, 0.96, error=0.01), True),
        (_measured(1, 0.96, error=0.02), False),
    ],
)
def test_measured__meets_the_target_with_its_error_to_spare_and_nearly_at_a_hundred(
    measured: Recall, meets: bool
) -> None:
    assert measured.reaches(0.95) is meets


def test_measured__meets_a_target_of_all_where_all_are_found() -> None:
    assert _measured(1, 1.0).reaches(1.0)
    assert not _measured(1, 0.999).reaches(1.0)


# --- measuring -------------------------------------------------------------------------------------------------------


def _query(number: int) -> Any:
    return np.array([number], dtype=np.float32)


def test_measure__counts_what_of_the_nearest_is_found() -> None:
    nearest = [list(range(200)), list(range(1000, 1200))]
    # The first question finds all; the second the first five, and fifty of the hundred.
    answers = [nearest[0], [*range(1000, 1005), *range(2000, 2005), *range(1010, 1055), *range(3000, 3045)]]
    result = measure_recall(lambda query: answers[int(query[0])], 7, [_query(0), _query(1)], nearest)
    assert result.setting == 7
    assert result.recall_at_10 == pytest.approx((1 + 0.5) / 2)
    assert result.recall_at_100 == pytest.approx((1 + 0.5) / 2)
    assert result.standard_error == pytest.approx(0.25)
    assert result.p50_ms >= 0


def test_measure__of_the_order_within_the_nearest_takes_no_notice() -> None:
    result = measure_recall(lambda _: [3, 1, 2], 1, [_query(0)], [[1, 2, 3]])
    assert (result.recall_at_10, result.recall_at_100, result.standard_error) == (1, 1, 0)


def test_measure__of_a_question_that_nothing_answers_is_no_loss() -> None:
    assert measure_recall(lambda _: [], 1, [_query(0)], [[]]).recall_at_10 == 1


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.integers())
def test_some_words__are_eight_to_twelve_in_a_row(words: Sequence[str], seed: int) -> None:
    numbered = [f"{word}{number}" for number, word in enumerate(words)]
    random.seed(seed)
    chosen = _random_words("  ".join(numbered)).split()
    assert min(8, len(words)) <= len(chosen) <= 12
    start = numbered.index(chosen[0])
    assert chosen == numbered[start : start + len(chosen)]


# --- planning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "lists"),
    [(1, 1), (999, 1), (10_000, 10), (1_000_000, 1_000), (4_000_000, 2_000), (10**10, 32_768)],
)
def test_plan_settings__have_as_many_lists_as_pgvector_advises(rows: int, lists: int) -> None:
    assert plan_settings("ivfflat", rows, SETTINGS) == {"precision": "half", "lists": lists}


def test_plan_settings__of_bits_score_more_candidates_again() -> None:
    bits = SETTINGS.model_copy(update={"precision": "bit"})
    assert plan_settings("ivfflat", 5_000, bits)["oversampling"] > 1
    assert plan_settings("hnsw", 5_000, bits) == {
        "precision": "bit",
        "oversampling": plan_settings("ivfflat", 5_000, bits)["oversampling"],
        "m": 16,
        "ef_construction": 128,
    }


@given(st.integers(1, 32_768))
def test_search_settings__rise_to_all_lists(lists: int) -> None:
    settings = _candidate_settings(_entry(lists=lists))
    assert (settings[0], settings[-1]) == (1, lists)
    assert settings == sorted(set(settings))
    assert all(later <= max(before + 1, 1.25 * before) for before, later in pairwise(settings))


def test_search_settings__of_hnsw_stay_within_pgvectors_bounds() -> None:
    settings = _candidate_settings(_entry("hnsw"))
    assert settings[0] == DEPTH, "a search gives no more than ef_search rows before it goes on"
    assert settings[-1] == 1_000
    assert settings == sorted(set(settings))


# --- when it is due --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "rows", "changed", "due"),
    [
        (_entry(), 10_000, {}, None),
        (_entry(), 20_000, {}, None),
        (_entry(), 20_001, {}, "grown from 10,000 to 20,001 rows"),
        (_entry(rows=40_000), 20_000, {}, None),
        (_entry(rows=40_000), 19_999, {}, "shrunk from 40,000 to 19,999 rows"),
        (_entry(), 5_000, {}, None),
        (_entry(), 4_999, {}, "4,999 rows are too few, indexes.vector_min_chunks is 10,000"),
        (_entry("hnsw"), 10_000, {}, None),
        (_entry("hnsw"), 10_000, {"vector": "ivfflat"}, "indexes.vector is ivfflat"),
        (_entry("ivfflat"), 10_000, {"vector": "ivfflat"}, None),
        (_entry("ivfflat"), 10_000, {"vector": "none"}, "indexes.vector is none"),
        (_entry(), 10_000, {"precision": "bit"}, "indexes.precision is bit"),
    ],
)
def test_rebuild_reason__names_the_setting_or_the_drift(
    entry: IndexRecord, rows: int, changed: dict[str, Any], due: str | None
) -> None:
    settings: IndexSettings = SETTINGS.model_copy(update=changed)
    assert rebuild_reason(entry, rows, 0, settings) == due


def test_rebuild_reason__counts_what_was_published_where_the_number_of_rows_tells_nothing() -> None:
    entry = replace(_entry(), health={"published": 50_000})
    assert rebuild_reason(entry, 10_000, 60_000, SETTINGS) is None
    assert rebuild_reason(entry, 10_000, 60_001, SETTINGS) == "10,001 chunks published since"


@pytest.mark.parametrize(
    ("kind", "days", "published", "p50_ms", "due"),
    [
        ("ivfflat", 2, 200, 14.2, "14.2 ms, indexes.target_ms is 10, and few chunks are published: hnsw is tried"),
        ("ivfflat", 2, 200, 9.0, None),  # fast enough
        ("ivfflat", 2, 201, 14.2, None),  # more than 1 % a day
        ("ivfflat", 0.5, 0, 14.2, None),  # not known yet
        ("hnsw", 2, 1_000, 14.2, None),
        ("hnsw", 2, 1_200, 4.0, "6% of the chunks are published a day, which hnsw makes slow"),
    ],
)
def test_rebuild_reason__of_auto_weighs_the_writers(
    kind: str, days: float, published: int, p50_ms: float, due: str | None
) -> None:
    built = datetime.now(UTC) - timedelta(days=days)
    entry = replace(_entry(kind), health={"published": 50_000, "p50_ms": p50_ms}, created_at=built)
    assert rebuild_reason(entry, 10_000, 50_000 + published, SETTINGS) == due
    rejected = replace(entry, health={**entry.health, "rejected": {"kind": "hnsw"}})
    assert rebuild_reason(rejected, 10_000, 50_000 + published, SETTINGS) == (due if kind == "hnsw" else None)
    if kind == "hnsw":
        chosen = SETTINGS.model_copy(update={"vector": kind})
        assert rebuild_reason(entry, 10_000, 50_000 + published, chosen) is None


def test_needs_vector_index__keeps_what_is_there_a_while_longer() -> None:
    assert not needs_vector_index(9_999, SETTINGS, indexed=False)
    assert needs_vector_index(10_000, SETTINGS, indexed=False)
    assert needs_vector_index(5_000, SETTINGS, indexed=True)
    assert not needs_vector_index(4_999, SETTINGS, indexed=True)
    assert not needs_vector_index(10**6, SETTINGS.model_copy(update={"vector": "none"}), indexed=True)


# --- how far it is searched ------------------------------------------------------------------------------------------


def _snapshot(readers: dict[str, int], *, chunks: int = 100) -> Snapshot:
    index = VectorIndex(
        id=uuid.uuid4(), kind="ivfflat", oversampling=None, probes=1, lists=10, ef_search=40, rows=100, acl=readers
    )
    corpus = CollectionStats(
        collection="kb",
        chunks=chunks,
        average=9.0,
        next_sequence=chunks + 1,
        state="s1",
        weights={},
        total_weight=0.0,
        segments=(),
    )
    return Snapshot(
        space_id=uuid.uuid4(),
        collections=(corpus,),
        chunks=corpus.chunks,
        terms=frozenset(),
        warnings=(),
        required=None,
        vector_index=index,
        total_chunks_unfiltered=corpus.chunks,
        enforced=False,
        routing=NO_ROUTING,
    )


READERS = {"everyone": 50, "everyone\x1ffinance": 20, "finance\x1flegal": 10, "audit": 20}
WHOLE = {"collection": None}


@pytest.mark.parametrize(
    ("principals", "share"),
    [(["everyone"], 0.7), (["finance"], 0.3), (["finance", "legal"], 0.3), (["everyone", "legal"], 0.8), (["x"], 0.0)],
)
def test_estimate_selectivity__counts_each_list_of_readers_once(principals: list[str], share: float) -> None:
    assert estimate_selectivity(_snapshot(READERS), WHOLE, principals) == pytest.approx(share)


def test_estimate_selectivity__of_a_collection_is_its_part_of_what_the_reader_may_read() -> None:
    snapshot = _snapshot(READERS, chunks=10)
    assert estimate_selectivity(snapshot, {"collection": "kb"}, ["everyone"]) == pytest.approx(0.07)
    assert estimate_selectivity(snapshot, WHOLE, ["everyone"]) == pytest.approx(0.7)
    grown = _snapshot(READERS, chunks=1_000)
    assert estimate_selectivity(grown, {"collection": "kb"}, ["everyone"]) == pytest.approx(0.7)


def test_estimate_selectivity__is_all_where_nothing_was_counted() -> None:
    assert estimate_selectivity(_snapshot({}), {"collection": "kb"}, ["finance"]) == 1.0
    assert estimate_selectivity(replace(_snapshot(READERS), vector_index=None), WHOLE, ["x"]) == 1.0
