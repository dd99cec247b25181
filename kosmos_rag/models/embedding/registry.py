"""The configured embedding models: of new tenants, and the migration target.

Either may be the model of a tenant's live space: before its migration, after it, and after a rollback.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.config import EmbeddingSettings, ModelsSettings, NextEmbeddingSettings, Settings
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.types import NO_PREFIXES, Prefixes, Space
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.embedding.server import ServerEmbedder
from kosmos_rag.models.embedding.space import check_compatible, describe_space, find_difference, space_id


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingModel:
    """A configured model."""

    embedder: Embedder
    normalized: bool
    """Whether its vectors are scaled to length one."""
    prefixes: Prefixes = NO_PREFIXES
    """What it puts before texts."""


@runtime_checkable
class _QueryBatches(Protocol):
    def embed_queries(self, questions: Sequence[str]) -> Vectors: ...


def embed_queries(embedder: Embedder, questions: Sequence[str]) -> list[NDArray[np.float32]]:
    """Embed questions that no reader waits for, in batches where the model can.

    The method for it is no part of the protocol, so that a model of an application need not have it. Raises ModelError.
    """
    if isinstance(embedder, _QueryBatches):
        return list(embedder.embed_queries(questions))
    return [embedder.embed_query(question) for question in questions]


class EmbedderRegistry:
    """Finds the configured model of an embedding space.

    Thread-safe; a model is loaded when first needed.
    """

    def __init__(self, default: EmbeddingModel, next_model: EmbeddingModel | None) -> None:
        """Args: default: model of `rag.embedding`. next_model: model of `rag.next_embedding`, if any."""
        self._default = default
        self._models = [default] if next_model is None else [default, next_model]
        self._descriptions: dict[int, Space] = {}
        self._by_space: dict[uuid.UUID, Embedder] = {}

    @property
    def default(self) -> Embedder:
        """The model of `rag.embedding`, for new tenants and token counts."""
        return self._default.embedder

    @property
    def all(self) -> list[Embedder]:
        """All configured models."""
        return [model.embedder for model in self._models]

    def warm_up(self) -> None:
        """Load the models. Raises ModelUnavailable."""
        for model in self._models:
            self._describe(model)

    def default_space(self, tenant_id: uuid.UUID) -> Space:
        """Return the space of a new tenant."""
        return self._describe_tenant_space(tenant_id, self._default)

    def target_space(self, live: Space, tenant_id: uuid.UUID, tenant: str) -> tuple[Space, Embedder] | None:
        """Return the space that a tenant can migrate to, and its model.

        The result is None where only one model is configured.

        Args:
            live: the tenant's live space.
            tenant_id: the tenant's id, part of the new space's id.
            tenant: the tenant's name, for messages.

        Raises EmbeddingSpaceMismatch where the live space is of no configured model.
        """
        live_embedder = self.get(live, tenant)
        for model in self._models:
            if model.embedder is not live_embedder:
                return self._describe_tenant_space(tenant_id, model), model.embedder
        return None

    def get_cached(self, space_id: uuid.UUID) -> Embedder | None:
        """Return the model of a space that was found before.

        The result is None for others.
        """
        return self._by_space.get(space_id)

    def get(self, space: Space, tenant: str) -> Embedder:
        """Return the model of a space.

        Raises EmbeddingSpaceMismatch where it is not configured, ModelUnavailable.
        """
        embedder = self._find(space)
        if embedder is None:
            check_compatible(space, self._describe(self._default), tenant)
            raise AssertionError("a space without a model differs from each model's space")
        return embedder

    def get_writable(self, spaces: Sequence[Space], tenant: str) -> list[tuple[Space, Embedder]]:
        """Return those of a tenant's spaces whose models are configured.

        The live one is first, as in `spaces`. A backfill finds later what is not written to the others. Raises
        EmbeddingSpaceMismatch where the model of the live space is not configured.
        """
        live, *former = spaces
        embedders = [(space, self._find(space)) for space in former]
        return [
            (live, self.get(live, tenant)),
            *((space, embedder) for space, embedder in embedders if embedder is not None),
        ]

    def _find(self, space: Space) -> Embedder | None:
        if (cached := self._by_space.get(space.id)) is not None:
            return cached
        # The model of the same name first: the other one may not have to be loaded.
        for model in sorted(self._models, key=lambda model: model.embedder.name != space.model):
            shape = (model.embedder.dimensions, model.normalized, model.prefixes)
            same_shape = shape == (space.dimensions, space.normalized, space.prefixes)
            if same_shape and find_difference(space, self._describe(model)) is None:
                self._by_space[space.id] = model.embedder
                return model.embedder
        return None

    def _describe_tenant_space(self, tenant_id: uuid.UUID, model: EmbeddingModel) -> Space:
        identity = space_id(tenant_id, model.embedder, normalized=model.normalized, prefixes=model.prefixes)
        return replace(self._describe(model), id=identity)

    def _describe(self, model: EmbeddingModel) -> Space:
        key = id(model)
        if key not in self._descriptions:  # it takes an embedding of the probe sentence
            self._descriptions[key] = describe_space(
                uuid.UUID(int=0), model.embedder, normalized=model.normalized, prefixes=model.prefixes
            )
        return self._descriptions[key]


def create_embedder(settings: EmbeddingSettings, models: ModelsSettings, section: str) -> Embedder:
    """Create the configured model: behind a server, or loaded here.

    Args:
        models: where models on this machine run.
        section: the section of the configuration that names it.

    Raises:
        ConfigError: the address, key or tokenizer of a server is invalid.
    """
    if settings.url is not None:
        return ServerEmbedder(settings, section=section)
    return SentenceTransformerEmbedder(settings, models, section=section)


def create_registry(settings: Settings, embedder: Embedder, next_embedder: Embedder | None) -> EmbedderRegistry:
    """Create the registry of `rag.embedding` and `rag.next_embedding`.

    Args:
        embedder: the model of `rag.embedding`.
        next_embedder: the model of `rag.next_embedding`, the target of a migration; None without one.
    """
    current, target = settings.rag.embedding, settings.rag.next_embedding
    return EmbedderRegistry(
        _describe_model(embedder, current),
        _describe_model(next_embedder, target) if next_embedder is not None else None,
    )


def _describe_model(embedder: Embedder, settings: EmbeddingSettings | NextEmbeddingSettings) -> EmbeddingModel:
    prefixes = Prefixes(settings.query_prefix, settings.passage_prefix)
    return EmbeddingModel(embedder=embedder, normalized=settings.normalize, prefixes=prefixes)
