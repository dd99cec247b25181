"""Measures: those of ir-measures, by hand and against itself."""

import math
from dataclasses import replace

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.evaluation.offline import QuestionResult
from kosmos_rag.evaluation.offline.metrics import compute_measures
from kosmos_rag.evaluation.offline.types import means, percentile

NAMES = ("nDCG@10", "R@10", "RR@10", "AP@10", "Success@1", "P@5")


def _result(key: str, judged: dict[str, int], ranking: tuple[str, ...]) -> QuestionResult:
    return QuestionResult(question_id=key, question="?", judged=judged, ranking=ranking, timings_ms={})


def test_measured__by_hand() -> None:
    # Relevant at ranks 2 (grade 2) and 3 (grade 1); a third relevant one is not found.
    result = _result("q", {"b": 2, "c": 1, "z": 1}, ("a", "b", "c"))
    ideal = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert compute_measures(NAMES, [result])["q"] == pytest.approx(
        {
            "nDCG@10": (2 / math.log2(3) + 1 / math.log2(4)) / ideal,
            "R@10": 2 / 3,
            "RR@10": 1 / 2,
            "AP@10": (1 / 2 + 2 / 3) / 3,
            "Success@1": 0.0,
            "P@5": 2 / 5,
        },
        abs=1e-9,
    )


def test_measured__what_is_not_found_counts_nothing_and_what_is_not_judged_is_left_out() -> None:
    measures = compute_measures(NAMES, [_result("none", {"a": 1}, ()), _result("open", {}, ("a",))])
    assert measures == {"none": dict.fromkeys(NAMES, 0.0)}
    assert compute_measures(NAMES, [_result("open", {}, ("a",))]) == {}


def test_measured__by_two_names_of_one_measure() -> None:
    measures = compute_measures(("MRR@10", "RR@10", "RR@10"), [_result("q", {"b": 1}, ("a", "b"))])
    assert measures == {"q": {"MRR@10": 0.5, "RR@10": 0.5}}


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(1, 4), min_size=1),
            st.permutations("abcdefghijklmnop").flatmap(lambda all_: st.integers(0, 16).map(lambda n: tuple(all_[:n]))),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_means__are_those_of_ir_measures(questions: list[tuple[dict[str, int], tuple[str, ...]]]) -> None:
    results = [_result(f"q{place}", judged, ranking) for place, (judged, ranking) in enumerate(questions)]
    by_question = compute_measures(NAMES, results)
    result_means = means(replace(result, measures=by_question[result.question_id]) for result in results)
    qrels = [ir_measures.Qrel(item.question_id, name, grade) for item in results for name, grade in item.judged.items()]
    run = [
        ir_measures.ScoredDoc(item.question_id, name, 1 / (rank + 1))
        for item in results
        for rank, name in enumerate(item.ranking)
    ]
    reference = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in NAMES], qrels, run)
    assert result_means == pytest.approx({str(measure): value for measure, value in reference.items()}, abs=1e-9)


@pytest.mark.parametrize("name", ["nDGC@10", "R@", "", "Foo(1)"])
def test_measured__refuses_what_is_no_measure(name: str) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.measures contains"):
        compute_measures([name], [_result("q", {"a": 1}, ("a",))])


def test_percentile__interpolates() -> None:
    assert percentile([4.0, 1.0, 2.0, 3.0], 0.5) == 2.5
    assert percentile([1.0], 0.95) == 1.0
    assert percentile([0.0, 10.0], 0.95) == pytest.approx(9.5)
