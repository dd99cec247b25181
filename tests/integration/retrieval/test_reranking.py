"""The rerank stage against a real database: its order, its threshold, and rerankers that misbehave."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.types import SearchResult
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import opened

DOCUMENTS = 12
SLOW_MACHINE_MS = 3_000
"""What a retrieval may take beyond its deadline where the machine is busy."""

Score = Callable[[Sequence[str]], list[float]]


class Reranker:
    """Scores as the test tells it to."""

    name = "told"

    def __init__(self, score: Score) -> None:
        self._score = score
        self.calls: list[tuple[str, list[str]]] = []

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        self.calls.append((question, list(passages)))
        return self._score(passages)


class Hanging(Reranker):
    """Never answers, until it is freed."""

    def __init__(self) -> None:
        self.free = threading.Event()
        super().__init__(self._wait)

    def _wait(self, passages: Sequence[str]) -> list[float]:
        self.free.wait()
        return _by_number(passages)


class SlowEmbedder(HashingEmbedder):
    """Takes 80 ms for a question."""

    def embed_query(self, question: str) -> NDArray[np.float32]:
        time.sleep(0.08)
        return super().embed_query(question)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """A reranker that hangs until the test ends."""
    reranker = Hanging()
    yield reranker
    reranker.free.set()


def _number(text: str) -> int:
    return int(text.split()[-1])


def _by_number(passages: Sequence[str]) -> list[float]:
    return [_number(text) / DOCUMENTS for text in passages]


def _ingest(engine: Engine, tenant_name: str) -> None:
    documents = [SourceDocument(source=f"s{n}", data=f"words number {n}".encode()) for n in range(DOCUMENTS)]
    engine.tenant(tenant_name).ingest(documents)


def _reranked(
    settings: Settings, tenant_name: str, reranker: Reranker, k: int | None = None, **overrides: object
) -> SearchResult:
    """Ask an engine with this reranker, whose deadline is no matter unless the test gives one."""
    keys = {"deadline_ms": 60_000, **overrides}
    changes = {f"rag.reranking.{key}": value for key, value in keys.items()}
    with opened(settings, changes, reranker=reranker) as engine:
        _ingest(engine, tenant_name)
        return engine.tenant(tenant_name).search("words", k)


def _assert_fused(result: SearchResult, settings: Settings, tenant_name: str) -> None:
    """Hits are those of an engine without a reranker, and the account says that the stage is missing."""
    with opened(settings, {}) as plain:
        fused = plain.tenant(tenant_name).search("words", result.requested).hits
    assert [hit.chunk_id for hit in result.hits] == [hit.chunk_id for hit in fused]
    assert [hit.rank for hit in result.hits] == list(range(1, 11))
    assert all(hit.rerank_score is None and hit.score == hit.fused_score for hit in result.hits)
    assert result.degraded_stages == ("rerank",)
    assert result.incomplete_reason is None


def test_rerank__reorders_and_drops_below_the_threshold(settings: Settings, tenant_name: str) -> None:
    reranker = Reranker(_by_number)
    result = _reranked(settings, tenant_name, reranker, threshold=0.5)
    assert [hit.text for hit in result.hits] == [f"words number {n}" for n in range(11, 5, -1)]
    assert [hit.rank for hit in result.hits] == list(range(1, 7))
    assert result.hits[0].score == result.hits[0].rerank_score == pytest.approx(11 / 12)
    assert {hit.fused_rank for hit in result.hits} < set(range(1, 13))
    assert all(hit.fused_score == pytest.approx(sum(hit.score_contributions.values())) for hit in result.hits)
    assert result.warnings == ("6 of 12 reranked below the threshold 0.5",)
    assert result.incomplete_reason == "12 passages found, 6 of them relevant enough for the reranking threshold"
    assert (result.stages[-1], result.degraded_stages) == ("rerank", ())
    assert [(question, len(passages)) for question, passages in reranker.calls] == [("words", 4), ("words", 8)]


def test_answer__refuses_what_no_passage_is_relevant_to(settings: Settings, tenant_name: str) -> None:
    changes = {"rag.reranking.deadline_ms": 60_000, "rag.answer.threshold": 0.0}
    for relevance, refused in ((0.9, False), (0.1, True)):
        reranker = Reranker(lambda passages, relevance=relevance: [relevance] * len(passages))
        with opened(settings, changes, reranker=reranker) as engine:
            _ingest(engine, tenant_name)
            answer = engine.tenant(tenant_name).answer("words number 3")
        assert (answer.refused, bool(answer.sentences)) == (refused, not refused)


def test_rerank__weighs_relevance_and_fused_score(settings: Settings, tenant_name: str) -> None:
    reranker = Reranker(lambda passages: [1 - score for score in _by_number(passages)])
    result = _reranked(settings, tenant_name, reranker, weight=0.02, threshold=0.5)
    with opened(settings, {}) as plain:
        best = max(hit.fused_score for hit in plain.tenant(tenant_name).search("words").hits)
    relevance = [hit.rerank_score or 0.0 for hit in result.hits]
    assert relevance != sorted(relevance, reverse=True)
    assert min(relevance) >= 0.5
    for hit, score in zip(result.hits, relevance, strict=True):
        assert score == pytest.approx(1 - _number(hit.text) / DOCUMENTS)
        assert hit.score == pytest.approx(0.02 * score + 0.98 * hit.fused_score / best)
    assert [hit.score for hit in result.hits] == sorted((hit.score for hit in result.hits), reverse=True)


def test_rerank__reads_more_than_are_asked_for(settings: Settings, tenant_name: str) -> None:
    """The last of the fused order may be the first of the reranked."""
    result = _reranked(settings, tenant_name, Reranker(_by_number), 2)
    assert [_number(hit.text) for hit in result.hits] == [11, 10]
    assert (result.returned, result.incomplete_reason) == (2, None)


def test_rerank__reads_no_more_than_top_k(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {}) as plain:
        _ingest(plain, tenant_name)
        fused = [hit.text for hit in plain.tenant(tenant_name).search("words").hits]
    reranker = Reranker(_by_number)
    changes = {"rag.retrieval.top_k": 4, "rag.reranking.deadline_ms": 60_000}
    with opened(settings, changes, reranker=reranker) as engine:
        engine.tenant(tenant_name).search("words", 2)
    assert reranker.calls == [("words", fused[:4])]


def test_rerank__of_equal_scores_keeps_the_fused_order(settings: Settings, tenant_name: str) -> None:
    result = _reranked(settings, tenant_name, Reranker(lambda passages: [0.5] * len(passages)))
    assert [hit.fused_rank for hit in result.hits] == list(range(1, 11))
    assert {hit.rerank_score for hit in result.hits} == {0.5}


def test_rerank__may_leave_nothing(settings: Settings, tenant_name: str) -> None:
    result = _reranked(settings, tenant_name, Reranker(lambda passages: [0.0] * len(passages)), threshold=0.01)
    assert (result.returned, result.degraded_stages) == (0, ())
    assert result.incomplete_reason == "12 passages found, 0 of them relevant enough for the reranking threshold"


def test_rerank__of_no_passages_asks_no_model(settings: Settings, tenant_name: str) -> None:
    reranker = Reranker(_by_number)
    with opened(settings, {"rag.reranking.deadline_ms": 1}, reranker=reranker) as engine:
        result = engine.tenant(f"{tenant_name}-nobody").search("words")
    assert (result.hits, result.degraded_stages, result.warnings, reranker.calls) == ((), (), (), [])


def _raise(_: Sequence[str]) -> list[float]:
    raise ModelError("the model is broken")


def _scores(first: float) -> Score:
    return lambda passages: [first, *[0.5] * (len(passages) - 1)]


NOT_SCORES = "the model gave scores that are not between 0 and 1"


@pytest.mark.parametrize(
    ("score", "fault"),
    [
        (_raise, "the model is broken"),
        (_scores(math.nan), NOT_SCORES),
        (_scores(math.inf), NOT_SCORES),
        (_scores(1.5), NOT_SCORES),
        (_scores(-0.1), NOT_SCORES),
        (lambda passages: [0.9] * (len(passages) - 1), "the model scored 3 of 4 passages"),
        (lambda passages: [0.9] * (len(passages) + 1), "the model scored 5 of 4 passages"),
        (lambda _: [], "the model scored 0 of 4 passages"),
    ],
)
def test_rerank__that_fails_leaves_the_fused_order_and_says_so(
    score: Score, fault: str, settings: Settings, tenant_name: str
) -> None:
    result = _reranked(settings, tenant_name, Reranker(score))
    assert result.warnings == (f"not reranked, in fused order: {fault}",)
    _assert_fused(result, settings, tenant_name)


def test_warm_up__finds_a_broken_model_and_retrieval_goes_on(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {"rag.reranking.deadline_ms": 60_000}, reranker=Reranker(_raise)) as engine:
        engine.warm_up()
        _ingest(engine, tenant_name)
        _assert_fused(engine.tenant(tenant_name).search("words"), settings, tenant_name)


def test_rerank__that_hangs_costs_its_deadline_and_no_more(
    settings: Settings, hanging: Hanging, tenant_name: str
) -> None:
    """The first questions wait for the model; when it has all its places, those after them do not wait at all."""
    changes = {"rag.reranking.deadline_ms": 1_000, "rag.reranking.concurrency": 2}
    with opened(settings, changes, reranker=hanging) as engine:
        _ingest(engine, tenant_name)
        answers, took_ms = [], []
        for _ in range(8):
            started = time.monotonic()
            answers.append(engine.tenant(tenant_name).search("words"))
            took_ms.append((time.monotonic() - started) * 1000)
    assert max(took_ms) <= 1_000 + SLOW_MACHINE_MS
    assert len(hanging.calls) == 2
    for number, result in enumerate(answers):
        late = "the deadline of 1000 ms passed"
        reason = late if number < 2 else "2 earlier calls are past their deadline and have not ended"
        assert result.warnings == (f"not reranked, in fused order: {reason}",)
        assert number < 2 or result.timings_ms["rerank"] < 500
        _assert_fused(result, settings, tenant_name)


class HangingInAnswers(Hanging):
    """Scores passages, and hangs when it reads the units of an answer."""

    def _wait(self, passages: Sequence[str]) -> list[float]:
        if UNIT in passages:
            self.free.wait()
        return [0.5] * len(passages)


UNIT = "Visitors park at the gate."


def test_answer__with_a_reranker_that_hangs_is_scored_by_the_embedder(settings: Settings, tenant_name: str) -> None:
    reranker = HangingInAnswers()
    changes = {"rag.reranking.enabled": True, "rag.reranking.deadline_ms": 2_000, "rag.reranking.concurrency": 1}
    with opened(settings, changes, reranker=reranker) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest(SourceDocument(source="garage.md", data=f"{UNIT} The lift is out of order today.".encode()))
        scope.search("Where is the lift?")  # connects, which may take long
        watchdog = threading.Timer(20, reranker.free.set)
        watchdog.start()
        answer = scope.answer("Where do visitors park?")
        hung = not reranker.free.is_set()
        busy = scope.search("Who parks at the gate?")
        watchdog.cancel()
        reranker.free.set()
    assert hung
    assert answer.warnings == ("the embedding model scored the units: the deadline of 2000 ms passed",)
    assert [set(unit.parts) for unit in answer.units] == [{"meaning", "words", "rank"}] * 2
    # The late call keeps the slot that searches have.
    assert busy.warnings == (
        "not reranked, in fused order: 1 earlier calls are past their deadline and have not ended",
    )


class HangingAfter(Hanging):
    """Scores so many batches, and then hangs until it is freed."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._left = batches

    def _wait(self, passages: Sequence[str]) -> list[float]:
        if self._left == 0:
            self.free.wait()
        self._left -= 1
        return _by_number(passages)


def test_deadline__keeps_the_scores_of_finished_batches(settings: Settings, tenant_name: str) -> None:
    reranker = HangingAfter(2)
    changes = {"rag.reranking.deadline_ms": 2_000, "rag.reranking.batch_size": 3, "rag.reranking.threshold": 0.0}
    with opened(settings, {}) as plain:
        _ingest(plain, tenant_name)
        fused = plain.tenant(tenant_name).search("words", DOCUMENTS).hits
    with opened(settings, changes, reranker=reranker) as engine:
        result = engine.tenant(tenant_name).search("words", DOCUMENTS)
        again = engine.tenant(tenant_name).search("words", DOCUMENTS)
        reranker.free.set()
    scored = sorted(fused[:6], key=lambda hit: -_number(hit.text))
    assert [hit.chunk_id for hit in result.hits] == [hit.chunk_id for hit in (*scored, *fused[6:])]
    assert [hit.rerank_score is None for hit in result.hits] == [False] * 6 + [True] * 6
    assert result.warnings == ("6 of 12 reranked before the deadline of 2000 ms",)
    assert result.degraded_stages == ("rerank",)
    assert not again.cached
    assert len(reranker.calls) == 4  # three batches of the first query, one of the second


def test_deadline__counts_from_when_the_question_came(settings: Settings, tenant_name: str) -> None:
    reranker = Reranker(_by_number)
    with opened(settings, {"rag.reranking.deadline_ms": 50}, embedder=SlowEmbedder(), reranker=reranker) as engine:
        _ingest(engine, tenant_name)
        result = engine.tenant(tenant_name).search("words")
    assert result.warnings == ("not reranked, in fused order: the deadline of 50 ms passed before",)
    assert result.timings_ms["embed"] >= 80
    assert reranker.calls == []
    _assert_fused(result, settings, tenant_name)


def test_concurrency__a_place_is_free_again_when_its_late_call_has_ended(
    settings: Settings, hanging: Hanging, tenant_name: str
) -> None:
    changes = {"rag.reranking.deadline_ms": 1_500, "rag.reranking.concurrency": 1}
    with opened(settings, changes, reranker=hanging) as engine:
        _ingest(engine, tenant_name)
        scope = engine.tenant(tenant_name)
        engine.tenant(f"{tenant_name}-nobody").search("words")  # connects, which may take long
        first = scope.search("words")
        second = scope.search("words")
        assert first.warnings == ("not reranked, in fused order: the deadline of 1500 ms passed",)
        reason = "1 earlier calls are past their deadline and have not ended"
        assert second.warnings == (f"not reranked, in fused order: {reason}",)
        assert len(hanging.calls) == 1
        hanging.free.set()
        while (third := scope.search("words")).degraded_stages:
            assert third.warnings == second.warnings
        # The late batch, and those of the third query, which cover all documents.
        assert sum(len(passages) for _, passages in hanging.calls) == 4 + DOCUMENTS
        assert _number(third.hits[0].text) == 11
