"""The size of reranking batches follows the time that they take."""

from collections.abc import Sequence

import pytest

from kosmos_rag.core.config import RerankingSettings
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.models.reranking.batch_size import RerankBatchSize
from kosmos_rag.retrieval.rerank import RerankStage
from tests.unit.retrieval.signals.passages import passage


class _Reranker:
    """Scores at once, and keeps how many passages it got."""

    name = "counting"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        self.sizes.append(len(passages))
        return [0.5] * len(passages)


def _settings(**changes: object) -> RerankingSettings:
    return RerankingSettings.model_validate({"enabled": True, "deadline_ms": 500, **changes})


def test_batch_size__doubles_while_batches_are_short() -> None:
    size = RerankBatchSize(_settings())
    sizes = []
    for _ in range(6):
        size.learn(size.passages, 10)
        sizes.append(size.passages)
    assert sizes == [8, 16, 32, 64, 64, 64]


def test_batch_size__shrinks_to_its_start_where_batches_are_long() -> None:
    size = RerankBatchSize(_settings())
    size.learn(4, 10)
    size.learn(8, 10)
    size.learn(16, 40)
    assert size.passages == 16, "between half of the limit and the limit it stays"
    sizes = []
    for _ in range(3):
        size.learn(size.passages, 51)
        sizes.append(size.passages)
    assert sizes == [8, 4, 4]


def test_batch_size__grows_by_full_batches_alone_and_shrinks_by_any() -> None:
    size = RerankBatchSize(_settings())
    size.learn(3, 1)
    assert size.passages == 4
    for _ in range(4):
        size.learn(size.passages, 10)
    assert size.passages == 64
    size.learn(20, 500)
    assert size.passages == 10


@pytest.mark.parametrize(("changes", "passages"), [({"batch_size": 7}, 7), ({"url": "http://localhost:8080"}, 32)])
def test_batch_size__stays_as_configured(changes: dict[str, object], passages: int) -> None:
    size = RerankBatchSize(_settings(**changes))
    size.learn(passages, 0.1)
    size.learn(passages, 10_000)
    assert size.passages == passages


def _learn(stage: RerankStage) -> None:
    for _ in range(5):
        stage._batch_size.learn(stage._batch_size.passages, 1)


def test_with_settings__keeps_what_was_learned() -> None:
    stage = RerankStage(_Reranker(), _settings(), Telemetry())
    _learn(stage)
    assert stage.with_settings(_settings(threshold=0.9))._batch_size.passages == 64


@pytest.mark.parametrize("changes", [{"batch_size": 7}, {"deadline_ms": 100}])
def test_with_settings__begins_anew_where_they_decide_the_size(changes: dict[str, object]) -> None:
    stage = RerankStage(_Reranker(), _settings(), Telemetry())
    _learn(stage)
    assert stage.with_settings(_settings(**changes))._batch_size.passages == _settings(**changes).passages_per_batch


def test_run__learns_the_size_from_its_batches() -> None:
    reranker = _Reranker()
    stage = RerankStage(reranker, _settings(deadline_ms=60_000), Telemetry())
    for _ in range(2):
        stage.run("question", [passage() for _ in range(20)], StageTimer())
    assert reranker.sizes == [4, 8, 8, 16, 4]
