"""What questions see of a move between models, and what it is judged by."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kosmos_rag import Filter, Settings
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.indexing.reembedding.moved import QUESTION
from tests.integration.two_models import NEW, OLD, OtherEmbedder, document, find_model
from tests.integration.variants import opened

pytestmark = pytest.mark.emptied_database


def _count_calls(embedder: HashingEmbedder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the questions that a model embeds from now on."""
    calls: list[str] = []
    embed_query = embedder.embed_query

    def counting(question: str) -> NDArray[np.float32]:
        calls.append(question)
        return embed_query(question)

    monkeypatch.setattr(embedder, "embed_query", counting)
    return calls


def test_question__is_embedded_once_and_twice_when_the_space_has_changed(
    acme: Tenant, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme.spaces.start()
    old, new = HashingEmbedder(dimensions=384), OtherEmbedder(dimensions=768)
    counts = [_count_calls(old, monkeypatch), _count_calls(new, monkeypatch)]

    def search(scope: Tenant, question: str) -> tuple[str, list[int]]:
        before = [len(count) for count in counts]
        model = find_model(scope.search(question))
        return model, [len(count) - first for count, first in zip(counts, before, strict=True)]

    with opened(settings, {}, embedder=old, next_embedder=new) as other:
        other.warm_up()
        scope = other.tenant("acme")
        assert search(scope, "churn of account1") == (OLD.name, [1, 0])
        acme.spaces.cutover()
        assert search(scope, "churn of account2") == (NEW.name, [1, 1])
        assert search(scope, "churn of account3") == (NEW.name, [0, 1])
        assert search(scope, "churn of account1") == (NEW.name, [0, 1])
        acme.spaces.rollback()
        assert search(scope, "churn of account4") == (OLD.name, [1, 1])
        assert search(scope, "churn of account1") == (OLD.name, [0, 0])  # its vectors are kept, of each model


@pytest.mark.parametrize(("current", "following"), [(OLD, NEW), (NEW, OLD)])
def test_sections__may_be_swapped_at_any_time(
    acme: Tenant, settings: Settings, current: HashingEmbedder, following: HashingEmbedder
) -> None:
    acme.spaces.start()
    with opened(settings, {}, embedder=current, next_embedder=following) as engine:
        scope = engine.tenant("acme")
        assert find_model(scope.search(QUESTION)) == OLD.name
        scope.spaces.cutover()
        assert find_model(scope.search(QUESTION)) == NEW.name
        scope.spaces.rollback()
        assert find_model(scope.search(QUESTION)) == OLD.name
        engine.tenant("fresh").ingest(document(1))
        assert [info.model for info in engine.tenant("fresh").spaces.status()] == [current.name]


def test_kept_result__is_of_one_space(acme: Tenant, settings: Settings) -> None:
    acme.spaces.start()
    with opened(settings, {"rag.retrieval.result_cache": 10}, embedder=OLD, next_embedder=NEW) as other:
        scope = other.tenant("acme")

        def search() -> tuple[str, bool]:
            result = scope.search(QUESTION)
            return find_model(result), result.cached

        assert [search(), search()] == [(OLD.name, False), (OLD.name, True)]
        acme.spaces.cutover()
        assert [search(), search()] == [(NEW.name, False), (NEW.name, True)]
        acme.spaces.rollback()
        assert search() == (OLD.name, True)


@pytest.mark.parametrize("variant", ["filter", "feedback", "phrase", "score fusion"])
def test_every_way_to_ask__uses_the_space_that_is_live(acme: Tenant, settings: Settings, variant: str) -> None:
    variants: dict[str, dict[str, Any]] = {
        "feedback": {"rag.retrieval.prf_weight": 0.5},
        "score fusion": {"rag.retrieval.fusion": "score"},
    }
    acme.spaces.start()
    with opened(settings, variants.get(variant, {}), embedder=OLD, next_embedder=NEW) as other:
        for switch in (lambda: None, acme.spaces.cutover, acme.spaces.rollback):
            switch()
            live = next(info.model for info in acme.spaces.status() if info.live)
            question = '"account7 in" churn' if variant == "phrase" else QUESTION
            expected = Filter(sources=("d7", "d8")) if variant == "filter" else None
            assert find_model(other.tenant("acme").search(question, 5, expected)) == live
