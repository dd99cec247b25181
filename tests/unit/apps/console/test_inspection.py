"""The drawing of a retrieval: where rows and lines stand, and what bars are made of."""

import math
import uuid
from collections.abc import Mapping

from kosmos_rag.apps.http.console.inspector import HIT_ROW_HEIGHT, RANKING_ROW_HEIGHT, inspect_result
from kosmos_rag.core.types import Passage, RetrieverStats, SearchResult
from tests.results import build_passage, build_result


def _hit(rank: int, fused: int, dense: int | None, lexical: int | None, signals: Mapping[str, float]) -> Passage:
    shares = {name: 1 / position for name, position in (("dense", dense), ("lexical", lexical)) if position is not None}
    return build_passage(
        rank,
        1.0 + sum(signals.values()),
        chunk_id=uuid.uuid4(),
        section=("Leave",),
        text="# Leave\n20 days",
        dense_rank=dense,
        dense_score=None if dense is None else 0.5,
        lexical_rank=lexical,
        lexical_score=None if lexical is None else 3.0,
        fused_rank=fused,
        fused_score=sum(shares.values()),
        score_contributions=shares,
        signals=signals,
    )


def _build_result(*hits: Passage) -> SearchResult:
    account = RetrieverStats(requested=100, returned=2, plan="exact scan", read={}, reason=None)
    return build_result(
        *hits,
        question="leave?",
        requested=len(hits),
        stages=("dense", "lexical"),
        timings_ms={"dense": 3.0, "lexical": 1.0, "total": 5.0},
        retrievers={"dense": account, "lexical": account},
    )


INSPECTION = inspect_result(
    _build_result(_hit(1, 2, 3, 1, {"header_match": 0.5}), _hit(2, 1, 1, None, {"intro_penalty": -0.25}))
)


def test_retrievers__are_in_their_own_order_and_lead_to_the_fused_one() -> None:
    assert [(entry.number, entry.rank, entry.gap) for entry in INSPECTION.dense.entries] == [
        (2, 1, False),
        (1, 3, True),
    ]
    assert [entry.number for entry in INSPECTION.lexical.entries] == [1]
    assert [entry.number for entry in INSPECTION.fused] == [2, 1]
    first, second = RANKING_ROW_HEIGHT / 2, RANKING_ROW_HEIGHT * 1.5
    assert [link.path[: link.path.index("C")] for link in INSPECTION.dense.links] == [f"M0 {first:g}", f"M0 {second:g}"]
    # On the other side lines begin at the fused order.
    assert INSPECTION.lexical.links[0].path == f"M0 {second:g}C45 {second:g} 55 {first:g} 100 {first:g}"


def test_hits__tell_how_far_they_moved() -> None:
    assert [row.moved for row in INSPECTION.hits] == [1, -1]
    assert INSPECTION.slopes[0].path.startswith(f"M0 {1.5 * HIT_ROW_HEIGHT:g}")
    assert INSPECTION.hits[0].excerpt == "20 days"


def test_bars__of_shares_are_as_long_as_the_fused_score() -> None:
    widths = [sum(bar.width for bar in row.score_contributions) for row in INSPECTION.hits]
    assert math.isclose(widths[0], 100, abs_tol=0.02)
    assert math.isclose(widths[1], 100 * 1 / (1 + 1 / 3), abs_tol=0.02)
    assert [bar.kind for bar in INSPECTION.hits[0].score_contributions] == ["dense", "lexical"]


def test_bars__of_signals_have_what_takes_away_left_of_zero() -> None:
    added, signal = (row.signals[-1] for row in INSPECTION.hits)
    assert (added.kind, signal.kind) == ("plus", "minus")
    assert math.isclose(signal.x + signal.width, INSPECTION.zero_x, abs_tol=0.02)
    assert math.isclose(added.x + added.width, 100, abs_tol=0.02)


def test_stages__fill_the_bar_with_what_is_left_over() -> None:
    assert [(stage.name, stage.milliseconds) for stage in INSPECTION.stages] == [
        ("dense", 3),
        ("lexical", 1),
        ("rest", 1),
    ]
    assert math.isclose(sum(stage.bar.width for stage in INSPECTION.stages), 100, abs_tol=0.05)


def test_nothing_found__is_drawn_as_nothing() -> None:
    empty = inspect_result(_build_result())
    assert (empty.hits, empty.fused, empty.reranked, empty.moved_by_signals) == ((), (), False, False)
