"""Experiments in service: the second configuration answers a share, and what readers say of it is counted."""

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Arm
from kosmos_rag.evaluation.experiments.experiments import Experiments
from tests.integration.evaluation.experiments.asking import WORDS, drained, filled, load_outcomes
from tests.integration.variants import opened

pytestmark = pytest.mark.emptied_database


def test_serve__share_is_answered_by_the_second_and_says_so(settings: Settings, database: DatabaseSettings) -> None:
    with opened(settings, {"rag.audit.enabled": True}) as engine:
        acme = filled(engine, subject="ada")
        plain = acme.search("churn account3", 5)
        Experiments(acme).start("words", WORDS, share=0.5, mode="serve")
        questions = [f"churn account{number}" for number in range(20)]
        first = [acme.search(question, 5) for question in questions]
        again = [acme.context(question, 5).retrieval for question in questions]
        assert [result.experiment for result in first] == [result.experiment for result in again]
        arms = [result.experiment.arm for result in first if result.experiment]
        assert len(arms) == 20
        assert set(arms) == {Arm.CONTROL, Arm.TREATMENT}
        for result, arm in zip(first, arms, strict=True):
            assert ("dense" in result.retrievers) == (arm is Arm.CONTROL)
            note = "answered by the second configuration of the experiment words"
            assert (note in result.warnings) == (arm is Arm.TREATMENT)
        drained(engine)
        rows = dict(load_outcomes(database, "retrieval_id, arm"))
        assert rows == {result.id: arm for result, arm in zip([*first, *again], arms * 2, strict=True)}
        settings_of = {record.id: record.settings for record in acme.audit.find(limit=100)}
        for result, arm in zip(first, arms, strict=True):
            assert result.id is not None
            assert plain.id is not None
            assert (settings_of[result.id] == settings_of[plain.id]) == (arm is Arm.CONTROL)
        assert Experiments(acme).status("words").arms[1].served == 2 * arms.count(Arm.TREATMENT)


def test_feedback__is_told_by_arm_and_tested(settings: Settings, database: DatabaseSettings) -> None:
    with opened(settings, {"rag.audit.enabled": True}) as engine:
        acme = filled(engine, subject="ada")
        Experiments(acme).start("words", WORDS, share=0.5, mode="serve")
        served = {Arm.CONTROL: 0, Arm.TREATMENT: 0}
        number = 0
        while min(served.values()) < 10:
            result = acme.search(f"churn number{number}", 3)
            number += 1
            assert result.experiment is not None
            arm = result.experiment.arm
            if served[arm] < 10:
                served[arm] += 1
                acme.feedback("up" if arm is Arm.TREATMENT else "down", retrieval_id=result.id)
                acme.feedback("click", retrieval_id=result.id, chunk_id=result.hits[0].chunk_id)
                acme.feedback("down", retrieval_id=result.id, chunk_id=result.hits[0].chunk_id)
        drained(engine)
        report = Experiments(acme).status("words")
        first, second = report.arms
        assert (first.up, first.down, first.clicked) == (0, 20, 10)
        assert (second.up, second.down, second.clicked) == (10, 10, 10)
        thumbs = next(difference for difference in report.differences if difference.of == "thumbs")
        assert (thumbs.first, thumbs.second, thumbs.significant, thumbs.reason) == (0.0, 0.5, True, "Fisher's exact")
        clicks = next(difference for difference in report.differences if difference.of == "clicks")
        assert clicks.p is None
        assert "too few questions" in clicks.reason
        assert [question.disliked for question in acme.audit.list_failed_questions()] != []


def test_clicks__are_of_a_passage(engine: Engine) -> None:
    with pytest.raises(RequestError, match="a click is on a passage"):
        engine.tenant("acme", subject="ada").feedback("click", question="churn")


def test_kept_results__of_the_two_are_never_mixed(settings: Settings) -> None:
    with opened(settings, {"rag.retrieval.result_cache": 50}) as engine:
        acme = filled(engine)
        assert not acme.search("churn account3", 5).cached
        Experiments(acme).start("words", WORDS, share=1.0, mode="serve")
        for cached in (False, True):
            result = acme.search("churn account3", 5)
            assert (result.cached, set(result.retrievers)) == (cached, {"lexical"})
        drained(engine)
        assert Experiments(acme).stop("words").results == 2
        result = acme.search("churn account3", 5)
        assert (result.cached, set(result.retrievers), result.experiment) == (True, {"dense", "lexical"}, None)
        # A result of before is compared with nothing: it was when it was made.
        Experiments(acme).start("shadow", WORDS, share=1.0)
        acme.search("churn account3", 5)
        drained(engine)
        assert Experiments(acme).status("shadow").results == 0
