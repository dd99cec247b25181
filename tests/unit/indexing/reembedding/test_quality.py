"""Evaluation sets as they are read, and what is measured too badly to switch."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import SpaceQuality
from kosmos_rag.evaluation.offline.embedding_quality import read_answerable
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


def test_questions__of_the_sample_are_those_that_a_file_answers() -> None:
    found = read_answerable(Path(__file__).parents[4] / "examples" / "questions.yaml")
    assert found[0].text == "How is churn calculated?"
    (place,) = found[0].locations
    assert (place.source, place.section) == ("example_sql.md", "Churn Calculation")
    assert all(asked.locations[0].source.endswith(".md") for asked in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {question: 'Who?', answerable: false}", "names the source of its answer"),
        ("- question: Who?\n", "must either name the location of its answer or have none"),
        ("question: Who?\nsource: a.md\n", "is not a list of questions"),
        ("- who\n", "is not a list of questions"),
        ("", "is not a list of questions"),
        ("- {", "cannot be read"),
    ],
)
def test_questions__that_are_another_thing_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "set.yaml"
    file.write_text(text)
    with pytest.raises(RequestError, match=message):
        read_answerable(file)
    with pytest.raises(RequestError, match="cannot be read"):
        read_answerable(tmp_path / "missing.yaml")


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
