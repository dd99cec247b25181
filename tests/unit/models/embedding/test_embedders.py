"""Whose space it is: the model found among those configured, whichever section names it."""

import uuid

import numpy as np
import pytest

from kosmos_rag.core.errors import EmbeddingSpaceMismatch
from kosmos_rag.core.types import Space
from kosmos_rag.models.embedding.registry import Embedders, Model
from kosmos_rag.models.embedding.space import space_of
from kosmos_rag.models.testing.hashing import HashingEmbedder

TENANT = uuid.UUID(int=7)
SMALL, LARGE = HashingEmbedder(dimensions=64), HashingEmbedder(dimensions=128)


class Unloadable(HashingEmbedder):
    """A model that must not be needed."""

    def embed_query(self, question: str) -> np.ndarray:  # type: ignore[type-arg]
        raise AssertionError("loaded")


def _model(embedder: HashingEmbedder, *, normalized: bool = True) -> Model:
    return Model(embedder=embedder, normalized=normalized)


def _space(embedder: HashingEmbedder, *, normalized: bool = True) -> Space:
    return space_of(TENANT, embedder, normalized=normalized)


@pytest.mark.parametrize(("current", "following"), [(SMALL, LARGE), (LARGE, SMALL)])
def test_space__has_its_model_whichever_section_names_it(current: HashingEmbedder, following: HashingEmbedder) -> None:
    embedders = Embedders(_model(current), _model(following))
    assert embedders.known(_space(SMALL).id) is None
    for embedder in (SMALL, LARGE):
        assert embedders.for_space(_space(embedder), "acme") is embedder
        assert embedders.known(_space(embedder).id) is embedder
    assert embedders.current is current
    assert embedders.space_for_new(TENANT).model == current.name
    assert embedders.all == [current, following]


def test_space__of_neither_model_is_a_mismatch_that_says_what_to_do() -> None:
    embedders = Embedders(_model(SMALL), _model(LARGE))
    with pytest.raises(EmbeddingSpaceMismatch, match=r"'acme' was embedded with 'hashing-32'.* rag\.next_embedding"):
        embedders.for_space(_space(HashingEmbedder(dimensions=32)), "acme")
    with pytest.raises(EmbeddingSpaceMismatch, match=r"normalize = false"):
        embedders.for_space(_space(SMALL, normalized=False), "acme")


def test_space__of_the_same_size_is_told_apart_by_its_probe() -> None:
    class Reversed(HashingEmbedder):
        @property
        def name(self) -> str:
            return "reversed"

        def embed_query(self, question: str) -> np.ndarray:  # type: ignore[type-arg]
            return super().embed_query(question[::-1])

    other = Reversed(dimensions=64)
    embedders = Embedders(_model(SMALL), _model(other))
    assert embedders.for_space(_space(other), "acme") is other
    assert embedders.for_space(_space(SMALL), "acme") is SMALL
    with pytest.raises(EmbeddingSpaceMismatch, match="embed one sentence differently"):
        Embedders(_model(SMALL), None).for_space(_space(other), "acme")


def test_model__that_is_not_asked_for_is_not_loaded() -> None:
    embedders = Embedders(_model(Unloadable(dimensions=32)), _model(LARGE))
    assert embedders.for_space(_space(LARGE), "acme") is LARGE
    assert [space.model for space, _ in embedders.writable([_space(LARGE)], "acme")] == ["hashing-128"]


def test_writable__are_those_whose_models_are_here_the_live_one_first() -> None:
    spaces = [_space(LARGE), _space(HashingEmbedder(dimensions=32)), _space(SMALL)]
    both = Embedders(_model(SMALL), _model(LARGE))
    assert both.writable(spaces, "acme") == [(spaces[0], LARGE), (spaces[2], SMALL)]
    one = Embedders(_model(LARGE), None)
    assert one.writable(spaces, "acme") == [(spaces[0], LARGE)]
    with pytest.raises(EmbeddingSpaceMismatch, match="hashing-128"):
        Embedders(_model(SMALL), None).writable(spaces, "acme")


def test_space_beside__is_of_the_model_that_is_not_live() -> None:
    both = Embedders(_model(SMALL), _model(LARGE))
    for live, other in ((SMALL, LARGE), (LARGE, SMALL)):
        found = both.space_beside(_space(live), TENANT, "acme")
        assert found is not None
        assert (found[0].id, found[1]) == (_space(other).id, other)
    assert Embedders(_model(SMALL), None).space_beside(_space(SMALL), TENANT, "acme") is None
