"""Which configuration of an experiment answered, as the service and its client tell it, and feedback on that."""

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.client import Client
from kosmos_rag.core.types import AnswerDone, AnswerSources, Arm, ExperimentAssignment
from kosmos_rag.evaluation.experiments.experiments import Experiments
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Signer, serving, with_tokens
from tests.integration.variants import changed

LEAVE = b"# Leave\n\n## Annual\n\nAll full-time employees receive 20 days of paid annual leave per year.\n"
QUESTION = "How many days of paid annual leave do full-time employees receive?"

pytestmark = pytest.mark.emptied_database


def test_experiment__is_told_of_each_answer_and_feedback_finds_its_side(
    settings: Settings, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    logging = changed(with_tokens(settings, signer), {"rag.audit.enabled": True})
    with Engine(logging, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:
        acme = engine.tenant("acme")
        acme.ingest(SourceDocument(source="leave.md", data=LEAVE))
        with Client(running.url, signer.token()) as client:
            assert client.search(QUESTION).experiment is None
            Experiments(acme).start("words", {"rag.retrieval.semantic_weight": 0.0}, share=1.0, mode="serve")
            outcome = client.search(QUESTION)
            sources, *_, new_outcome = client.stream_answer(QUESTION)
            assert isinstance(sources, AnswerSources)
            assert isinstance(new_outcome, AnswerDone)
            result = (
                outcome,
                client.context(QUESTION).retrieval,
                client.answer(QUESTION).context.retrieval,
                sources.context.retrieval,
                new_outcome.answer.context.retrieval,
            )
            assert {item.experiment for item in result} == {ExperimentAssignment(experiment="words", arm=Arm.TREATMENT)}
            client.feedback("up", retrieval_id=outcome.id)
        assert engine.background.drain(60)
        first, second = Experiments(acme).status("words").arms
        assert (first.served, second.served, second.up) == (0, 4, 1)
