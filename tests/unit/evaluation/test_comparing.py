"""Differences, what is more than chance, gates, and tuning."""

import itertools
import random
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.evaluation.offline import (
    Location,
    Question,
    QuestionSet,
    check_thresholds,
    compare,
    for_evaluation,
    list_changes,
    plots,
)
from kosmos_rag.evaluation.offline.grid import label, parse_grid, require_applied
from kosmos_rag.evaluation.offline.report import report
from kosmos_rag.evaluation.offline.significance import bootstrap_interval, holm, randomisation_p
from kosmos_rag.evaluation.offline.tuning import (
    TuningStage,
    default_stages,
    render_configuration,
    split_questions,
    tune,
)
from kosmos_rag.evaluation.settings import EvaluationSettings
from tests.unit.evaluation.making import evaluation, make_evaluation


def test_randomisation__is_near_the_exact_value_over_all_signs() -> None:
    gains = [0.4, -0.1, 0.3, 0.2, 0.5, 0.1, -0.05, 0.35]
    sums = [
        abs(sum(s * g for s, g in zip(signs, gains, strict=True))) for signs in itertools.product((1, -1), repeat=8)
    ]
    exact = statistics.fmean(value >= abs(sum(gains)) - 1e-9 for value in sums)
    assert randomisation_p(gains) == pytest.approx(exact, abs=0.01)
    assert randomisation_p([0.0] * 5) == 1.0
    assert randomisation_p(gains) == randomisation_p(gains)


def test_randomisation__is_that_of_scipy() -> None:
    from scipy import stats  # a second that every process of a run would spend

    dice = random.Random(7)
    for size, mean in ((12, 0.05), (40, 0.02), (225, 0.01)):
        gains = [dice.gauss(mean, 0.1) for _ in range(size)]
        reference = stats.permutation_test(
            (gains,), statistics.fmean, permutation_type="samples", n_resamples=9_999, random_state=1
        )
        assert randomisation_p(gains) == pytest.approx(reference.pvalue, abs=0.015)


def test_bootstrap__is_that_of_scipy() -> None:
    from scipy import stats  # a second that every process of a run would spend

    dice = random.Random(8)
    values = [dice.betavariate(0.6, 0.9) for _ in range(225)]
    reference = stats.bootstrap(
        (values,), np.mean, n_resamples=9_999, method="percentile", confidence_level=0.95, rng=np.random.default_rng(3)
    ).confidence_interval
    assert bootstrap_interval(values) == pytest.approx((reference.low, reference.high), abs=0.004)


def test_bootstrap__is_near_the_normal_interval() -> None:
    dice = random.Random(4)
    values = [dice.gauss(0.3, 0.2) for _ in range(400)]
    mean, error = statistics.fmean(values), statistics.stdev(values) / 20
    assert bootstrap_interval(values) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.003)


def test_holm__by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_compare__counts_wins_and_losses_and_tells_chance_from_more() -> None:
    before = make_evaluation("R@10", [0.2] * 30)
    better = make_evaluation("R@10", [0.5] * 28 + [0.1] * 2, number=2)
    alike = make_evaluation("R@10", [0.3, 0.1] * 15, number=3)
    first, second = compare(before, [better, alike])
    assert (first.wins, first.losses, first.questions) == (28, 2, 30)
    assert first.difference == pytest.approx((28 * 0.3 - 2 * 0.1) / 30)
    assert first.significant
    assert not first.worse
    assert first.low < first.difference < first.high
    assert first.corrected_p == pytest.approx(2 * first.p)
    assert (second.wins, second.losses, second.significant) == (15, 15, False)
    (back,) = compare(better, [before])
    assert back.worse


def test_compare__of_a_measure_that_is_better_low() -> None:
    (item,) = compare(
        make_evaluation("false_answers", [1.0] * 20), [make_evaluation("false_answers", [0.0] * 20, number=2)]
    )
    assert (item.wins, item.losses, item.significant, item.worse) == (20, 0, True, False)


def test_compare__refuses_other_questions() -> None:
    with pytest.raises(RequestError, match="only evaluations of the same questions"):
        compare(make_evaluation("R@10", [1.0]), [evaluation({"q000": {"R@10": 1.0}}, set_sha256="other")])


def test_gate__says_of_each_measure_where_it_stands() -> None:
    settings = EvaluationSettings(
        targets={"R@10": 0.8, "RR@10": 0.6, "false_answers": 0.1}, alerts={"R@10": 0.7, "AP@10": 0.2}
    )
    item = evaluation({"q": {"R@10": 0.75, "RR@10": 0.6, "AP@10": 0.1, "false_answers": 0.2}})
    assert {verdict.measure: verdict.state for verdict in check_thresholds(item, settings)} == {
        "R@10": "below target",
        "RR@10": "reached",
        "false_answers": "below target",
        "AP@10": "alert",
    }
    with pytest.raises(RequestError, match=r"has no R@10, but P@5"):
        check_thresholds(make_evaluation("P@5", [1.0]), settings)
    with pytest.raises(RequestError, match="are empty"):
        check_thresholds(item, EvaluationSettings(targets={}, alerts={}))
    with pytest.raises(RequestError, match=r"evaluation\.alerts is empty"):
        check_thresholds(
            make_evaluation("R@10", [1.0]), EvaluationSettings(targets={"R@10": 0.8}, alerts={}), alerts_only=True
        )


def test_grid__is_every_combination() -> None:
    tried = parse_grid(["retrieval.semantic_weight=0.5,0.7", "rag.retrieval.fusion=rrf,score"])
    assert [list(changes.values()) for changes in tried] == [[0.5, "rrf"], [0.5, "score"], [0.7, "rrf"], [0.7, "score"]]
    assert label(tried[0]) == "retrieval.semantic_weight=0.5 retrieval.fusion=rrf"
    assert parse_grid(()) == [{}]
    assert parse_grid(["evaluation.depth=5"]) == [{"evaluation.depth": 5}]


@pytest.mark.parametrize("text", ["retrieval.top_k", "=1", "a=", "a=[", "a=b: {"])
def test_grid__of_another_form_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is not KEY=VALUE,VALUE"):
        parse_grid([text])


def test_grid__that_a_preset_undoes_is_refused() -> None:
    changes = {"rag.retrieval.top_k": 7, "rag.expansion.synonyms": "words.yaml"}
    expected = Settings.load(overrides=changes)
    with pytest.raises(RequestError, match=r"top_k is 20 and cannot be 7: the preset of the collection sets"):
        require_applied(expected, Settings(), changes)
    require_applied(expected, expected, changes)  # a path is given as a text


def test_grid__that_an_evaluation_undoes_is_refused() -> None:
    changes = {"rag.reranking.deadline_ms": 50}
    expected = Settings.load(overrides=changes)
    with pytest.raises(RequestError, match="deadline_ms is 3600000"):
        require_applied(expected, for_evaluation(expected), changes)


def _set(count: int) -> QuestionSet:
    questions = (Question(id=f"q{n:03}", text=f"{n}?", locations=(Location(source="a"),)) for n in range(count))
    return QuestionSet(name="set", questions=tuple(questions))


def test_halves__are_always_the_same_and_share_nothing() -> None:
    train, test = split_questions(_set(41))
    ids = [{question.id for question in half.questions} for half in (train, test)]
    assert (len(ids[0]), len(ids[1])) == (21, 20)
    assert not ids[0] & ids[1]
    assert split_questions(_set(41))[0].sha256 == train.sha256
    with pytest.raises(RequestError, match="use 20 or more"):
        split_questions(_set(19))


def _asking(worth: dict[Any, float]) -> Any:
    """Answers each half with the worth of the changed weight, a little more or less by question."""

    def ask(changes: Mapping[str, Any], question_set: QuestionSet) -> Any:
        value = worth[changes.get("w")] + 0.01 * changes.get("d", 0)
        measures = {q.id: {"R@10": value + 0.001 * (hash(q.text) % 3)} for q in question_set.questions}
        return evaluation(measures, number=2 if changes else 1, set_sha256=question_set.sha256)

    return ask


def test_tune__chooses_stage_by_stage_and_reports_the_other_half(tmp_path: Path) -> None:
    stages = [
        TuningStage(alternatives=[{"w": 1}, {"w": 2}, {"w": 3}]),
        TuningStage(alternatives=[{"d": 0}, {"d": 5}]),
    ]
    tuned = tune(_set(60), stages, "R@10", _asking({None: 0.3, 1: 0.2, 2: 0.5, 3: 0.4}))
    assert tuned.changes == {"w": 2, "d": 5}
    assert tuned.difference.difference == pytest.approx(0.25)
    assert tuned.difference.significant
    assert tuned.difference.questions == 30

    base = tmp_path / "rag-config.yaml"
    base.write_text("rag: {retrieval: {top_k: 7, rrf_k: 3}}")
    file = tmp_path / "tuned.yaml"
    file.write_text(render_configuration(tuned, {"rag.retrieval.rrf_k": 9}, "rag-config.yaml"))
    assert "significant" in file.read_text()
    settings = Settings.load(file)
    assert (settings.rag.retrieval.top_k, settings.rag.retrieval.rrf_k) == (7, 9)
    assert Settings.load(base).rag.retrieval.rrf_k == 3
    assert yaml.safe_load(file.read_text())["extends"] == "rag-config.yaml"


def test_tune__keeps_what_there_is_where_nothing_is_better() -> None:
    tuned = tune(_set(20), [TuningStage(alternatives=[{"w": 1}])], "R@10", _asking({None: 0.3, 1: 0.3}))
    assert tuned.changes == {}
    assert tuned.difference.difference == 0
    with pytest.raises(RequestError, match="P@5 is not measured"):
        tune(_set(20), [], "P@5", _asking({None: 0.3}))


def test_tune__takes_the_fewest_passages_that_are_as_good_within_the_deadline() -> None:
    """Twenty are better than five, thirty are no better than twenty, and fifty end too late."""

    def ask(changes: Mapping[str, Any], question_set: QuestionSet) -> Any:
        count = changes.get("n", 30)
        worth = {5: 0.3, 20: 0.5, 30: 0.501, 50: 0.9}[count]
        measures = {
            q.id: {"R@10": worth + 0.01 * (number % 3) * (count == 20)}
            for number, q in enumerate(question_set.questions)
        }
        result = evaluation(measures, number=count, set_sha256=question_set.sha256)
        return replace(
            result, results=tuple(replace(item, timings_ms={"total": 10.0 * count}) for item in result.results)
        )

    counts = TuningStage(alternatives=[{"n": count} for count in (5, 20, 30, 50)], deadline_ms=400)
    assert tune(_set(60), [counts], "R@10", ask).changes == {"n": 20}


def test_usual_stages__are_settings_that_can_be() -> None:
    for changes in itertools.chain.from_iterable(stage.alternatives for stage in default_stages(Settings())):
        assert Settings.load(overrides=dict(changes)) is not None


def test_file__that_extends_itself_or_no_file_is_refused(tmp_path: Path) -> None:
    item, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    item.write_text("extends: other.yaml")
    other.write_text("extends: one.yaml")
    with pytest.raises(ConfigError, match="extends itself"):
        Settings.load(item)
    item.write_text("extends: [other.yaml]")
    with pytest.raises(ConfigError, match="give the path of one file"):
        Settings.load(item)
    item.write_text("extends: missing.yaml")
    with pytest.raises(ConfigError, match=r"missing\.yaml \(extended by .*one\.yaml\) cannot be read"):
        Settings.load(item)


def test_changed__is_told_of_settings_models_and_code() -> None:
    before = make_evaluation("R@10", [0.1, 0.5])
    state = {**before.index_state, "language_model": "qwen3"}
    after = replace(make_evaluation("R@10", [0.2, 0.5], number=2), index_state=state, code_version="2")
    assert list_changes(before, after) == [
        ("rag.retrieval.rrf_k", "1", "2"),
        ("language_model", "null", '"qwen3"'),
        ("code", '"1"', '"2"'),
    ]
    assert list_changes(before, before) == []


def test_report__is_one_file_without_network_or_script_and_escapes() -> None:
    before, after = make_evaluation("R@10", [0.1, 0.5, 0.9]), make_evaluation("R@10", [0.4, 0.5, 0.2], number=2)
    after = replace(after, index_state={**after.index_state, "language_model": "<qwen>"})
    page = report([before, after])
    assert page.count("<svg") == 3
    assert "<script" not in page
    assert "What is &lt;q000&gt;?" in page
    assert "retrieval.rrf_k" in page
    assert "<td>language_model</td><td>null</td><td>&#34;&lt;qwen&gt;&#34;</td>" in page
    assert "<td>&lt;qwen&gt;</td>" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/", "")
    assert plots.gains(before, after, "R@10") in page
    alone = report([before])
    assert alone.count("<svg") == 2
    worst = alone.partition("Lowest values")[2]
    assert [worst.index(f"What is &lt;q{n:03}&gt;?") for n in (0, 1, 2)] == sorted(
        worst.index(f"What is &lt;q{n:03}&gt;?") for n in (0, 1, 2)
    )


def test_report__goes_by_the_first_measure_that_is_better_high() -> None:
    values = {"q1": {"degraded": 1.0, "false_answers": 0.0, "abstention": 1.0}, "q2": {"abstention": 0.0}}
    worst = report([evaluation(values)]).partition("Lowest values")[2]
    assert worst.index("What is &lt;q2&gt;?") < worst.index("What is &lt;q1&gt;?")


def test_report__of_evaluations_without_a_measure_in_common() -> None:
    page = report([make_evaluation("R@10", [0.1, 0.5]), make_evaluation("P@5", [0.2, 0.4], number=2)])
    assert "Largest gains" not in page
    assert "R@10" in page
    assert "P@5" in page


def test_report__of_questions_that_have_no_measure() -> None:
    assert "<h2>Latency by stage</h2>" in report([make_evaluation("degraded", [0.0, 0.0])])


def test_report__takes_a_label_for_text_however_long() -> None:
    item = replace(make_evaluation("R@10", [0.1, 0.5]), label=r"context.citation_format=$\frac{index}$ <b>" + "x" * 200)
    page = report([item, item])
    assert "none: the same settings" in page
    assert page.count(r"$\frac{index}$ &lt;b&gt;xxx") > 2
    assert "<b>" not in page
