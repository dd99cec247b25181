"""Experiments in service whose second configuration fails: the first one answers, and the failures are counted."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import StatementFailed
from kosmos_rag.core.types import Arm, ExperimentAssignment, SearchResult
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.experiments.experiments import Experiments
from kosmos_rag.evaluation.metrics import EXPERIMENT_QUESTIONS
from tests.integration.evaluation.experiments.asking import (
    WORDS,
    BrokenEmbedder,
    as_admin,
    drained,
    filled,
    load_outcomes,
    result,
)
from tests.integration.variants import opened

pytestmark = pytest.mark.emptied_database

VECTORS = {"rag.retrieval.semantic_weight": 0.5}
QUESTION = "churn account3"


class Outcomes:
    """Counts what became of questions that took part."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def record(self, metric: Any, value: float = 1.0, *labels: str) -> None:
        del value
        if metric is EXPERIMENT_QUESTIONS:
            self.labels += labels

    def gauge(self, metric: Any, read: Callable[[], float], *labels: str) -> None:
        """Nothing of this is looked at."""


@pytest.fixture
def embedder() -> BrokenEmbedder:
    return BrokenEmbedder()


@pytest.fixture
def words(settings: Settings, embedder: BrokenEmbedder) -> Iterator[Engine]:
    """An engine that needs no vectors, with one connection: it must be whole after what failed."""
    changes = {**WORDS, "rag.audit.enabled": True, "database.pool_size": 1}
    with opened(settings, changes, embedder=embedder) as engine:
        yield engine


def _without_account(search_result: SearchResult) -> SearchResult:
    return replace(result(search_result), warnings=())


def _assert_first_answered(acme: Tenant, plain: SearchResult, fault: str) -> None:
    outcome = acme.search(QUESTION, 5)
    assert _without_account(outcome) == _without_account(plain)
    assert outcome.warnings == (
        f"the second configuration of the experiment vectors failed ({fault}), and the first one answered",
    )
    assert outcome.experiment == ExperimentAssignment(experiment="vectors", arm=Arm.CONTROL)
    assert outcome.id is not None
    assert plain.id is not None
    settings_of = {record.id: record.settings for record in acme.audit.find()}
    assert settings_of[outcome.id] == settings_of[plain.id]


@pytest.mark.own_database
def test_statement_that_fails__is_made_good_by_the_first_configuration_and_counted(
    words: Engine, database: DatabaseSettings
) -> None:
    outcomes = Outcomes()
    words.observe(outcomes)
    acme = filled(words, subject="ada")
    plain = acme.search(QUESTION, 5)
    Experiments(acme).start("vectors", VECTORS, share=1.0, mode="serve")
    as_admin(database, "REVOKE SELECT ON kosmos.embeddings FROM kosmos_app")
    _assert_first_answered(acme, plain, "StatementFailed")
    assert acme.context(QUESTION, 5).passages
    as_admin(database, "GRANT SELECT ON kosmos.embeddings TO kosmos_app")
    outcome = acme.search(QUESTION, 5)
    assert outcome.experiment == ExperimentAssignment(experiment="vectors", arm=Arm.TREATMENT)
    drained(words)
    assert outcomes.labels == ["failed", "failed", "kept"]
    assert [row[:2] for row in load_outcomes(database, "arm, error, retrieval_id")] == [
        ("control", "StatementFailed"),
        ("control", "StatementFailed"),
        ("treatment", None),
    ]
    report = Experiments(acme).status("vectors")
    assert (report.results, report.failed) == (3, 2)
    # What the second one failed at speaks for neither of them.
    assert [(arm.questions, arm.served) for arm in report.arms] == [(0, 0), (1, 1)]


def test_model_that_fails__fails_no_question(words: Engine, embedder: BrokenEmbedder) -> None:
    acme = filled(words, subject="ada")
    plain = acme.search(QUESTION, 5)
    Experiments(acme).start("vectors", VECTORS, share=1.0, mode="serve")
    embedder.fails = True
    _assert_first_answered(acme, plain, "ModelError")
    drained(words)
    assert Experiments(acme).status("vectors").failed == 1


@pytest.mark.parametrize("mode", ["serve", "shadow"])
def test_settings_that_cannot_be_any_more__are_counted(words: Engine, database: DatabaseSettings, mode: str) -> None:
    acme = filled(words, subject="ada")
    plain = acme.search(QUESTION, 5)
    Experiments(acme).start("vectors", VECTORS, share=1.0, mode=mode)
    as_admin(database, """UPDATE kosmos.experiments SET content = '{"rag": {"retrieval": {"candidates": -1}}}'""")
    if mode == "serve":
        _assert_first_answered(acme, plain, "ConfigError")
    else:
        assert result(acme.search(QUESTION, 5)) == result(plain)
    drained(words)
    report = Experiments(acme).status("vectors")
    assert (report.results, report.compared, report.failed, report.faults) == (1, 0, 1, {"ConfigError": 1})


def test_reranker_that_the_process_lacks__is_no_silent_equality(words: Engine) -> None:
    acme = filled(words)
    Experiments(acme).start("reranked", {"rag.reranking.enabled": True}, share=1.0)
    acme.search(QUESTION, 5)
    drained(words)
    report = Experiments(acme).status("reranked")
    assert (report.identical, report.faults) == (0, {"ConfigError": 1})


@pytest.mark.own_database
def test_first_configuration_that_fails__fails_the_question(settings: Settings, database: DatabaseSettings) -> None:
    with opened(settings, {}) as engine:
        acme = filled(engine)
        Experiments(acme).start("words", WORDS, share=1.0, mode="serve")
        as_admin(database, "REVOKE SELECT ON kosmos.chunks FROM kosmos_app")
        with pytest.raises(StatementFailed):
            acme.search(QUESTION, 5)
        drained(engine)
        assert Experiments(acme).status("words").results == 0
