"""Scores of units by an embedding model and by a reranker, and what an answer does with them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kosmos_rag.answering import scorers
from kosmos_rag.answering.evidence import score_evidence
from kosmos_rag.answering.pipeline import Answerer
from kosmos_rag.answering.scorers import MAX_COMPARED, EmbeddingScorer, RerankingScorer
from kosmos_rag.core.config import RagSettings, RerankingSettings
from kosmos_rag.core.errors import ModelError, ModelUnavailable
from kosmos_rag.core.protocols import Reranker, Vectors
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.types import Answer, Context
from kosmos_rag.models.reranking.batch_size import RerankBatchSize
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.unit.answering.passages import context, passage

QUESTION = "How long may a guest park?"
GARAGE = passage(
    "A guest may park long at the gate. Visitors leave their car for two hours. The lift is out of order.",
    section="Garage",
)
SCORER = EmbeddingScorer(HashingEmbedder(dimensions=512))
ANSWERING = "Visitors leave their car for two hours."


class Relevance:
    """A reranker that knows the relevance of each unit."""

    name = "relevance"

    def __init__(self, relevance: Callable[[str], float]) -> None:
        self._relevance = relevance
        self.calls: list[tuple[str, list[str]]] = []

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        self.calls.append((question, list(passages)))
        return [self._relevance(text) for text in passages]


class Account:
    """Counts what is charged."""

    def __init__(self) -> None:
        self.amounts: dict[tuple[usage.Quantity, str | None], float] = {}

    def record(self, quantity: usage.Quantity, amount: float, model: str | None) -> None:
        self.amounts[quantity, model] = self.amounts.get((quantity, model), 0.0) + amount


def _build_reranker(**by_word: float) -> Relevance:
    return Relevance(lambda text: next((value for word, value in by_word.items() if word in text), 0.01))


def _answer(reranker: Reranker | None, evidence: Context | None = None, **settings: object) -> Answer:
    rag = RagSettings.model_validate(settings)
    scorer = None if reranker is None else RerankingScorer(reranker, RerankBatchSize(rag.reranking))
    answerer = Answerer(HashingEmbedder(dimensions=512), None, rag, reranking_scorer=scorer)
    return answerer.stream(QUESTION, evidence or context(QUESTION, GARAGE)).answer()


def test_answer__quotes_the_unit_that_the_reranker_prefers() -> None:
    by_embedder = _answer(None, answer={"threshold": 0.0})
    assert by_embedder.sentences[0].text == "A guest may park long at the gate."
    answer = _answer(_build_reranker(Visitors=0.9))
    assert [sentence.text for sentence in answer.sentences] == [ANSWERING]
    assert answer.confidence == pytest.approx(0.9)
    assert [dict(unit.parts) for unit in answer.units] == [
        {"relevance": pytest.approx(score)} for score in (0.9, 0.01, 0.01)
    ]


def test_answer__is_refused_where_the_reranker_finds_no_unit_relevant() -> None:
    answer = _answer(_build_reranker(guest=0.2, Visitors=0.4))
    assert answer.refused
    assert answer.refusal_reason is not None
    assert "score of 0.40 and so a confidence of 0.40, below rag.answer.threshold, 0.50" in answer.refusal_reason
    assert [sentence.text for sentence in answer.closest] == [ANSWERING]


def test_reranker__reads_units_after_their_titles_in_batches_by_length() -> None:
    reranker = _build_reranker(Visitors=0.9)
    account = Account()
    with usage.charge_to(account.record):
        _answer(reranker, reranking={"batch_size": 2})
    units = [
        "Garage: Visitors leave their car for two hours.",
        "Garage: A guest may park long at the gate.",
        "Garage: The lift is out of order.",
    ]
    assert reranker.calls == [(QUESTION, units[:2]), (QUESTION, units[2:])]
    assert account.amounts[usage.Quantity.RERANKED_PASSAGES, "relevance"] == 3


def test_reranker__is_not_asked_where_reranking_is_off() -> None:
    reranker = _build_reranker(Visitors=0.9)
    answer = _answer(reranker, reranking={"enabled": False})
    assert reranker.calls == []
    assert set(answer.units[0].parts) == {"meaning", "words", "rank"}


def test_reranker__is_not_asked_again_where_it_failed_in_the_search() -> None:
    evidence = context(QUESTION, GARAGE)
    evidence = replace(evidence, retrieval=replace(evidence.retrieval, degraded_stages=("rerank",)))
    reranker = _build_reranker(Visitors=0.9)
    answer = _answer(reranker, evidence)
    assert reranker.calls == []
    assert (set(answer.units[0].parts), answer.warnings) == ({"meaning", "words", "rank"}, ())


def _fail(error: Exception) -> Relevance:
    def refuse(_: str) -> float:
        raise error

    return Relevance(refuse)


@pytest.mark.parametrize(
    ("reranker", "reason"),
    [
        (_fail(ModelUnavailable("the server is away")), "the server is away"),
        (_fail(ValueError("no tensor")), "the reranker failed: no tensor"),
        (Relevance(lambda _: float("nan")), "did not give one finite score for each unit"),
    ],
    ids=["unavailable", "of the caller", "not finite"],
)
def test_answer__is_scored_by_the_embedder_where_the_reranker_fails(reranker: Relevance, reason: str) -> None:
    answer = _answer(reranker, answer={"threshold": 0.0})
    assert answer.sentences == _answer(None, answer={"threshold": 0.0}).sentences
    (warning,) = answer.warnings
    assert warning.startswith("the embedding model scored the units: ")
    assert reason in warning


def test_answer__does_not_ask_the_reranker_for_more_units_than_the_most_compared() -> None:
    text = " ".join(f"Gate {number} is open to a car." for number in range(MAX_COMPARED + 9)) + f" {ANSWERING}"
    reranker = _build_reranker(Visitors=0.9)
    answer = _answer(reranker, context("Where do visitors leave their car?", passage(text, section="Garage")))
    assert sum(len(texts) for _, texts in reranker.calls) == MAX_COMPARED
    assert [sentence.text for sentence in answer.sentences] == [ANSWERING]


def _batch_size() -> RerankBatchSize:
    return RerankBatchSize(RerankingSettings(enabled=True, deadline_ms=60_000))


def test_reranking_scorer__learns_how_many_units_a_batch_may_have() -> None:
    reranker = _build_reranker()
    texts = [f"unit {number}" for number in range(MAX_COMPARED)]
    scorer = RerankingScorer(reranker, _batch_size())
    for _ in range(2):
        scorer.compare([QUESTION], texts, [[0.0] * len(texts)])
    assert [len(texts) for _, texts in reranker.calls] == [4, 8, 4, 16]


def test_reranking_scorer__begins_no_batch_past_the_deadline() -> None:
    reranker = _build_reranker()

    def run(question: str, call: Callable[[], scorers.Similarities]) -> scorers.Similarities:
        late.append(call)
        raise ModelError("the deadline passed")

    late: list[Callable[[], scorers.Similarities]] = []
    with pytest.raises(ModelError, match="deadline"):
        RerankingScorer(reranker, _batch_size(), run).compare([QUESTION], ["one", "two"], [[0.0, 0.0]])
    late[0]()
    assert reranker.calls == []


class CountingEmbedder(HashingEmbedder):
    """Keeps what it is asked to embed."""

    def __init__(self) -> None:
        super().__init__(dimensions=64)
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        return super().embed(texts)


def test_embedding_scorer__embeds_each_unit_once() -> None:
    embedder = CountingEmbedder()
    scorer = EmbeddingScorer(embedder)
    (first,) = scorer.compare([QUESTION], ["one unit", "another", "one unit"], [[0.0] * 3])
    (second,) = scorer.compare(["another question"], ["another", "a third"], [[0.0] * 2])
    assert embedder.texts == ["one unit", "another", "a third"]
    assert first[0] == first[2]
    (alone,) = EmbeddingScorer(embedder).compare(["another question"], ["another", "a third"], [[0.0] * 2])
    assert second == pytest.approx(alone)


def test_embedding_scorer__keeps_the_units_of_the_last_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorers, "_CACHED_BYTES", 2 * 64 * 4)
    embedder = CountingEmbedder()
    scorer = EmbeddingScorer(embedder)
    for texts in (["one", "two"], ["two"], ["three"], ["two"], ["one"]):
        scorer.compare([QUESTION], texts, [[0.0] * len(texts)])
    assert embedder.texts == ["one", "two", "three", "one"]


def test_embedding_scorer__compares_the_units_with_most_words_of_a_question() -> None:
    embedder = CountingEmbedder()
    texts = [f"unit {number}" for number in range(MAX_COMPARED + 4)]
    words = [0.0] * len(texts)
    words[-1] = 0.5
    EmbeddingScorer(embedder).compare(["unit", "another"], texts, [words, [0.0] * len(texts)])
    assert sorted(embedder.texts) == sorted([*texts[:MAX_COMPARED], texts[-1]])


def test_embedding_scorer__compares_no_unit_that_an_answer_would_not_quote() -> None:
    embedder = CountingEmbedder()
    texts = ["gates open", *(f"the gate {number}" for number in range(7)), "unit 5", "unit 6", "unit 7"]
    words = [1.0, *[0.9] * 7, 0.8, 0.6, 0.5]
    (similarities,) = EmbeddingScorer(embedder).compare(["gates open"], texts, [words])
    assert similarities[0] == pytest.approx(1.0)
    assert embedder.texts == texts[:9]  # 0.6 and the similarity of the first one are less than .85 of its score
    assert list(similarities[9:]) == [0.0, 0.0]


def test_embedding_scorer__compares_a_near_unit_after_others_that_share_more_words() -> None:
    texts = ["one", "two", "three", "four", "five", "six", "seven", "gates open"]
    (similarities,) = EmbeddingScorer(HashingEmbedder(dimensions=512)).compare(
        ["gates open"], texts, [[*[0.6] * 7, 0.4]]
    )
    assert similarities[-1] == pytest.approx(1.0)


def test_embedding_scorer__takes_the_vector_of_the_search() -> None:
    embedder = HashingEmbedder(dimensions=64)
    scorer = EmbeddingScorer(embedder, embed_question=lambda _: embedder.embed_query("one"))
    (similarities,) = scorer.compare([QUESTION], ["one", "two"], [[0.0, 0.0]])
    assert similarities == pytest.approx([1.0, float(similarities[1])])


def test_reranking_scorer__refuses_a_number_of_scores_that_is_not_that_of_the_units() -> None:
    class Short:
        name = "short"

        def score(self, question: str, passages: Sequence[str]) -> list[float]:
            return [0.5] * (len(passages) - 1)

    with pytest.raises(ModelError, match="one finite score"):
        RerankingScorer(Short(), _batch_size()).compare([QUESTION], ["one", "two"], [[0.0, 0.0]])


def test_score_evidence__supports_a_unit_by_the_words_of_its_passage() -> None:
    for text, has_all_words in (("A guest may park here. It is long.", True), ("A guest may park here. So.", False)):
        best = max(score_evidence(QUESTION, [passage(text, section="")], SCORER), key=lambda item: item.score)
        assert best.unit.text == "A guest may park here."
        assert best.parts["words"] < 1
        share = 1.0 if has_all_words else best.parts["words"]
        assert best.support == pytest.approx(best.parts["meaning"] + share)


def test_score_evidence__compares_a_unit_with_the_title_above_it() -> None:
    text = "4. Guest Parking\n\nIt costs 5 euros.\n\n5. Lunch\n\nIt costs 4 euros."
    evidence = score_evidence("What does guest parking cost?", [passage(text, section="")], SCORER)
    assert {item.unit.text: item.words == 1 for item in evidence} == {
        "4. Guest Parking": False,
        "It costs 5 euros.": True,
        "5. Lunch": False,
        "It costs 4 euros.": False,
    }
