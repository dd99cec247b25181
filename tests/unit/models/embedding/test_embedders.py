"""Whose space it is: the model found among those configured, whichever section names it."""

import uuid

import numpy as np
import pytest

from kosmos_rag.core.errors import EmbeddingSpaceMismatch
from kosmos_rag.core.types import Prefixes, Space
from kosmos_rag.models.embedding.registry import EmbedderRegistry, EmbeddingModel, embed_queries
from kosmos_rag.models.embedding.space import describe_space
from kosmos_rag.models.testing.hashing import HashingEmbedder

TENANT = uuid.UUID(int=7)
SMALL, LARGE = HashingEmbedder(dimensions=64), HashingEmbedder(dimensions=128)


class Unloadable(HashingEmbedder):
    """A model that must not be needed."""

    def embed_query(self, question: str) -> np.ndarray:
        raise AssertionError("loaded")


def _model(embedder: HashingEmbedder, *, normalized: bool = True) -> EmbeddingModel:
    return EmbeddingModel(embedder=embedder, normalized=normalized)


def _space(embedder: HashingEmbedder, *, normalized: bool = True) -> Space:
    return describe_space(TENANT, embedder, normalized=normalized)


@pytest.mark.parametrize(("current", "following"), [(SMALL, LARGE), (LARGE, SMALL)])
def test_space__has_its_model_whichever_section_names_it(current: HashingEmbedder, following: HashingEmbedder) -> None:
    embedders = EmbedderRegistry(_model(current), _model(following))
    assert embedders.get_cached(_space(SMALL).id) is None
    for embedder in (SMALL, LARGE):
        assert embedders.get(_space(embedder), "acme") is embedder
        assert embedders.get_cached(_space(embedder).id) is embedder
    assert embedders.default is current
    assert embedders.default_space(TENANT).model == current.name
    assert embedders.all == [current, following]


def test_space__of_neither_model_is_a_mismatch_that_says_what_to_do() -> None:
    embedders = EmbedderRegistry(_model(SMALL), _model(LARGE))
    with pytest.raises(EmbeddingSpaceMismatch, match=r"'acme' was embedded with 'hashing-32'.* rag\.next_embedding"):
        embedders.get(_space(HashingEmbedder(dimensions=32)), "acme")
    with pytest.raises(EmbeddingSpaceMismatch, match=r"normalize = false"):
        embedders.get(_space(SMALL, normalized=False), "acme")


def test_space__of_the_same_size_is_told_apart_by_its_probe() -> None:
    class Reversed(HashingEmbedder):
        @property
        def name(self) -> str:
            return "reversed"

        def embed_query(self, question: str) -> np.ndarray:
            return super().embed_query(question[::-1])

    other = Reversed(dimensions=64)
    embedders = EmbedderRegistry(_model(SMALL), _model(other))
    assert embedders.get(_space(other), "acme") is other
    assert embedders.get(_space(SMALL), "acme") is SMALL
    with pytest.raises(EmbeddingSpaceMismatch, match="embed one sentence differently"):
        EmbedderRegistry(_model(SMALL), None).get(_space(other), "acme")


def test_model__that_is_not_asked_for_is_not_loaded() -> None:
    embedders = EmbedderRegistry(_model(Unloadable(dimensions=32)), _model(LARGE))
    assert embedders.get(_space(LARGE), "acme") is LARGE
    assert [space.model for space, _ in embedders.get_writable([_space(LARGE)], "acme")] == ["hashing-128"]


def test_writable__are_those_whose_models_are_here_the_live_one_first() -> None:
    spaces = [_space(LARGE), _space(HashingEmbedder(dimensions=32)), _space(SMALL)]
    both = EmbedderRegistry(_model(SMALL), _model(LARGE))
    assert both.get_writable(spaces, "acme") == [(spaces[0], LARGE), (spaces[2], SMALL)]
    registry = EmbedderRegistry(_model(LARGE), None)
    assert registry.get_writable(spaces, "acme") == [(spaces[0], LARGE)]
    with pytest.raises(EmbeddingSpaceMismatch, match="hashing-128"):
        EmbedderRegistry(_model(SMALL), None).get_writable(spaces, "acme")


def test_target_space__is_of_the_model_that_is_not_live() -> None:
    both = EmbedderRegistry(_model(SMALL), _model(LARGE))
    for live, other in ((SMALL, LARGE), (LARGE, SMALL)):
        result = both.target_space(_space(live), TENANT, "acme")
        assert result is not None
        assert (result[0].id, result[1]) == (_space(other).id, other)
    assert EmbedderRegistry(_model(SMALL), None).target_space(_space(SMALL), TENANT, "acme") is None


def test_space__with_other_prefixes_is_another_one() -> None:
    """The vectors of one model with another prefix are close, and yet not comparable."""
    prefixes = Prefixes("query: ", "passage: ")
    stored = describe_space(TENANT, SMALL, normalized=True, prefixes=prefixes)
    with_prefixes = EmbeddingModel(embedder=SMALL, normalized=True, prefixes=prefixes)
    assert EmbedderRegistry(with_prefixes, None).get(stored, "acme") is SMALL
    assert stored.id == EmbedderRegistry(with_prefixes, None).default_space(TENANT).id != _space(SMALL).id
    with pytest.raises(EmbeddingSpaceMismatch, match=r"made with rag\.embedding\.query_prefix = 'query: ', and '' is"):
        EmbedderRegistry(_model(SMALL), None).get(stored, "acme")
    following = EmbeddingModel(embedder=HashingEmbedder(dimensions=64), normalized=True, prefixes=prefixes)
    target = EmbedderRegistry(_model(SMALL), following).target_space(_space(SMALL), TENANT, "acme")
    assert target is not None
    assert target[0].prefixes == prefixes


def test_embed_queries__asks_a_model_without_batches_for_one_question_at_a_time() -> None:
    questions = ["notice", "leave"]
    assert np.array_equal(embed_queries(SMALL, questions), [SMALL.embed_query(question) for question in questions])
