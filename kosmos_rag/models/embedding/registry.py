"""The models that are configured here: one for new tenants, one that tenants are being moved to; by whose space it is.

Either may be the model of a tenant's live space, at any time: before it is moved, after, and after it was moved back.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from kosmos_rag.core.config import Settings
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Space
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.embedding.space import difference, require_same, space_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A configured model."""

    embedder: Embedder
    normalized: bool
    """Whether its vectors are scaled to length one."""


class Embedders:
    """Finds the model of a space among those configured. Thread-safe; a model is loaded when it is first needed."""

    def __init__(self, current: Model, following: Model | None) -> None:
        """Take the model of `rag.embedding`, and that of `rag.next_embedding` if there is one."""
        self._current = current
        self._models = [current] if following is None else [current, following]
        self._described: dict[int, Space] = {}
        self._found: dict[uuid.UUID, Embedder] = {}

    @property
    def current(self) -> Embedder:
        """The model of `rag.embedding`: that of new tenants, and the one that documents are cut into chunks for."""
        return self._current.embedder

    @property
    def all(self) -> list[Embedder]:
        """All that are configured."""
        return [model.embedder for model in self._models]

    def warm_up(self) -> None:
        """Load the models. Raises ModelUnavailable."""
        for model in self._models:
            self._description(model)

    def space_for_new(self, tenant_id: uuid.UUID) -> Space:
        """Return the space that a tenant without one gets."""
        return space_of(tenant_id, self._current.embedder, normalized=self._current.normalized)

    def space_beside(self, live: Space, tenant_id: uuid.UUID, tenant: str) -> tuple[Space, Embedder] | None:
        """Return the space that a tenant may be moved to, with its model; None where no other model is configured.

        Raises EmbeddingSpaceMismatch where the live space is of neither.
        """
        own = self.for_space(live, tenant)
        for model in self._models:
            if model.embedder is not own:
                return space_of(tenant_id, model.embedder, normalized=model.normalized), model.embedder
        return None

    def known(self, space_id: uuid.UUID) -> Embedder | None:
        """Return the model of a space that was looked at before; None for any other."""
        return self._found.get(space_id)

    def for_space(self, space: Space, tenant: str) -> Embedder:
        """Return the model that embeds into a space. Raises EmbeddingSpaceMismatch, ModelUnavailable."""
        found = self._find(space)
        if found is None:
            require_same(space, self._description(self._current), tenant)
            raise AssertionError("a space that is not found differs from each model's")
        return found

    def writable(self, spaces: Sequence[Space], tenant: str) -> list[tuple[Space, Embedder]]:
        """Return those of a tenant's spaces whose models are here; the first is the live one.

        What is not written of the others is found missing later.
        Raises EmbeddingSpaceMismatch where the model of the live one is not here.
        """
        live, *others = spaces
        found = [(space, self._find(space)) for space in others]
        return [
            (live, self.for_space(live, tenant)),
            *((space, embedder) for space, embedder in found if embedder is not None),
        ]

    def _find(self, space: Space) -> Embedder | None:
        if (known := self._found.get(space.id)) is not None:
            return known
        # By name first: the other model need not be loaded to find out that it is another.
        for model in sorted(self._models, key=lambda model: model.embedder.name != space.model):
            alike = (model.embedder.dimensions, model.normalized) == (space.dimensions, space.normalized)
            if alike and difference(space, self._description(model)) is None:
                self._found[space.id] = model.embedder
                return model.embedder
        return None

    def _description(self, model: Model) -> Space:
        """Return the space of a model, whoever's it is: made once, for it takes an embedding."""
        key = id(model)
        if key not in self._described:
            self._described[key] = space_of(uuid.UUID(int=0), model.embedder, normalized=model.normalized)
        return self._described[key]


def configured(settings: Settings, embedder: Embedder, next_embedder: Embedder | None) -> Embedders:
    """Return the model of `rag.embedding` and that of `rag.next_embedding`, where one is given or named."""
    current, following = settings.rag.embedding, settings.rag.next_embedding
    if next_embedder is None and following.embedding is not None:
        next_embedder = SentenceTransformerEmbedder(following.embedding, settings.models, section="rag.next_embedding")
    return Embedders(
        Model(embedder=embedder, normalized=current.normalize),
        Model(embedder=next_embedder, normalized=following.normalize) if next_embedder is not None else None,
    )
