"""Signals together: their sum, their order, their account, and intents that switch them."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.apply import SignalResult, Signals
from tests.unit.retrieval.signals.passages import build_query, passage

SQL = "```sql\nselect 1\n```"


def _applied(
    signals: Mapping[str, Any], passages: list[Passage], question: str = "?", intents: Mapping[str, Any] | None = None
) -> SignalResult:
    return Signals(signals, intents or {}).apply(
        build_query(question), passages, ahead=lambda hit: "phrase" in hit.score_contributions
    )


def test_apply__without_signals_changes_nothing() -> None:
    hits = [passage(score=7.0), passage(score=9.0)]
    assert _applied({}, hits) == SignalResult(passages=hits, intent=None, warnings=())
    assert not Signals({}, {}).enabled


def test_apply__scales_the_scores_to_the_best_and_adds() -> None:
    plain, sql = passage(score=8.0), passage(SQL, 4.0)
    result = _applied({"contains_sql": {"weight": 0.6}}, [plain, sql]).passages
    assert [hit.chunk_id for hit in result] == [sql.chunk_id, plain.chunk_id]
    assert [hit.score for hit in result] == pytest.approx([1.1, 1.0])
    assert [hit.signals for hit in result] == [{"contains_sql": 0.6}, {}]


@pytest.mark.parametrize("scale", [0.001, 1.0, 50.0])
def test_apply__weights_mean_the_same_whatever_the_scale_of_the_scores(scale: float) -> None:
    hits = [passage(score=0.9 * scale), passage(SQL, 0.6 * scale)]
    result = _applied({"contains_sql": {"weight": 0.5}}, hits).passages
    assert [hit.score for hit in result] == pytest.approx([0.6 / 0.9 + 0.5, 1.0])


def test_apply__multiplies_after_it_has_added_whatever_the_order() -> None:
    factor = {"weight": 0.2, "how": "multiply", "titles": ["section"]}
    both = {"intro_penalty": factor, "contains_sql": {"weight": 0.5}}
    for signals in (both, dict(reversed(both.items()))):
        [hit] = _applied(signals, [passage(SQL)]).passages
        assert hit.score == pytest.approx((1 + 0.5) * 1.2)
        assert hit.signals == pytest.approx({"contains_sql": 0.5, "intro_penalty": 0.3})


def test_apply__choosing_signals_run_in_their_order_and_say_what_they_left_out() -> None:
    hits = [passage("refunds", 1.0, source="a"), passage("churn", 0.9, source="a"), passage("churn", 0.8, source="b")]
    gate_first: dict[str, Any] = {"keyword_gate": {"terms": ["churn"]}, "one_per_source": {}}
    result = _applied(gate_first, hits, "churn?")
    assert [hit.source for hit in result.passages] == ["a", "b"]
    assert result.warnings == ("keyword_gate left out 1 of 3 passages",)
    result = _applied(dict(reversed(gate_first.items())), hits, "churn?")
    assert [hit.source for hit in result.passages] == ["b"]
    assert result.warnings == ("one_per_source left out 1 of 3 passages", "keyword_gate left out 1 of 2 passages")


def test_apply__keeps_those_ahead_before_the_rest() -> None:
    phrase, better = passage(score=0.5, score_contributions={"phrase": 0.1}), passage(SQL, 1.0)
    result = _applied({"contains_sql": {"weight": 1.0}}, [phrase, better]).passages
    assert [hit.chunk_id for hit in result] == [phrase.chunk_id, better.chunk_id]


def test_apply__of_scores_that_are_all_nothing() -> None:
    result = _applied({"contains_sql": {"weight": 0.5}}, [passage(score=0.0), passage(SQL, 0.0)]).passages
    assert [hit.score for hit in result] == [0.5, 0.0]


INTENTS = {
    "calculation": {
        "patterns": [r"\bhow\b.*\bcalculated\b"],
        "words": ["sql"],
        "signals": {"contains_sql": {"weight": 1.0}, "one_per_source": None},
    },
    "incident": {"words": ["late"]},
}


@pytest.mark.parametrize(
    ("question", "intent", "score", "count"),
    [
        ("How is churn calculated?", "calculation", 2.0, 2),
        ("give me the SQL", "calculation", 2.0, 2),
        ("MySQL is late", "incident", 1.1, 1),
        ("a translated word", None, 1.1, 1),
    ],
)
def test_intent__is_the_first_rule_that_fits_and_switches_signals(
    question: str, intent: str | None, score: float, count: int
) -> None:
    signals = {"contains_sql": {"weight": 0.1}, "one_per_source": {}}
    result = _applied(signals, [passage(SQL), passage("x", 0.5)], question, INTENTS)
    assert result.intent == intent
    assert result.passages[0].score == pytest.approx(score)
    assert len(result.passages) == count


def test_intent__without_conditions_fits_what_no_other_does() -> None:
    rules = {"incident": {"words": ["late"]}, "other": {}}
    assert _applied({}, [passage()], "What is a trial?", rules).intent == "other"
    assert _applied({}, [passage()], "It is LATE.", rules).intent == "incident"


@pytest.mark.parametrize(
    ("signals", "intents", "message"),
    [
        ({"contain_sql": {"weight": 1.0}}, {}, r"rag\.signals\.contain_sql is no signal: did you mean contains_sql\?"),
        ({"zzz": {}}, {}, "the signals are contains_sql, department_match"),
        ({"contains_sql": {}}, {}, r"rag\.signals\.contains_sql\.weight: Field required"),
        ({"contains_sql": {"weight": "1"}}, {}, r"rag\.signals\.contains_sql\.weight: .*number"),
        ({"one_per_source": {"limt": 1}}, {}, r"one_per_source\.limt: .*known here are limit"),
        ({"one_per_source": 3}, {}, "is 3: it must be a mapping of limit"),
        ({}, {"a": {"patterns": ["("]}}, r"rag\.intents\.a\.patterns\.0: .*regular expressions"),
        ({}, {"a": {"signals": {"zzz": {}}}}, r"rag\.intents\.a\.signals\.zzz is no signal"),
    ],
)
def test_settings__that_cannot_be_are_named(signals: Any, intents: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Signals(signals, intents)


@given(
    scores=st.lists(st.floats(0, 1000), min_size=1, max_size=12),
    weight=st.floats(-2, 2),
    how=st.sampled_from(["add", "multiply"]),
)
def test_apply__the_account_adds_up_and_scores_decide_the_order(scores: list[float], weight: float, how: str) -> None:
    hits = [passage(SQL if at % 2 else "prose of its own", score) for at, score in enumerate(scores)]
    before = {hit.chunk_id: hit.score / max(scores) if max(scores) else 0.0 for hit in hits}
    result = _applied({"contains_sql": {"weight": weight, "how": how}, "diversity": {}}, hits).passages
    assert {hit.chunk_id for hit in result} == set(before)
    for hit in result:
        assert hit.score == pytest.approx(before[hit.chunk_id] + sum(hit.signals.values()))
    assert [hit.score for hit in result] == pytest.approx(sorted((hit.score for hit in result), reverse=True))
