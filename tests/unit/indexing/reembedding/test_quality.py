"""What is measured too badly to switch, and the partitions of a backfill."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.types import SpaceQuality
from kosmos_rag.indexing.reembedding.backfill import ALL_IDS, id_partition
from kosmos_rag.indexing.reembedding.migration import rejection_reason

GOOD = SpaceQuality(
    model="new",
    live_model="old",
    recall_at_10=0.96,
    recall_target=0.95,
    questions=10,
    ndcg_at_10=0.8,
    live_ndcg_at_10=0.81,
    forced=None,
)


def test_refusal__names_what_was_measured() -> None:
    assert rejection_reason(GOOD) is None
    assert rejection_reason(replace(GOOD, recall_at_10=None, ndcg_at_10=None, live_ndcg_at_10=None)) is None
    assert "recall@10 of its index is 0.940, the target is 0.95" in (
        rejection_reason(replace(GOOD, recall_at_10=0.94)) or ""
    )
    worse = rejection_reason(replace(GOOD, ndcg_at_10=0.7)) or ""
    assert worse == "nDCG@10 is 0.700 over 10 questions, that of 'old' 0.810"


@given(st.integers(1, 200))
def test_parts__are_all_ids_and_do_not_overlap(parts: int) -> None:
    ranges = [id_partition(number, parts) for number in range(parts)]
    assert ranges[0].after == ALL_IDS.after
    assert ranges[-1].until == ALL_IDS.until
    assert all(before.until == following.after for before, following in pairwise(ranges))
