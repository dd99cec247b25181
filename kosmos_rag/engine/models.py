"""Models of an engine: given by the caller, or configured."""

from contextlib import ExitStack
from typing import Protocol, TypeVar, runtime_checkable

from kosmos_rag.core.config import Settings
from kosmos_rag.core.protocols import Embedder, LanguageModel, Reranker
from kosmos_rag.models.embedding.registry import create_embedder
from kosmos_rag.models.llm.client import ChatModel
from kosmos_rag.models.reranking.cross_encoder import CrossEncoderReranker
from kosmos_rag.models.reranking.server import ServerReranker

M = TypeVar("M")


@runtime_checkable
class _Closeable(Protocol):
    def close(self) -> None: ...


class EngineModels:
    """The models of an engine.

    `close` closes the connections of those that it created, and leaves those of the caller.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        embedder: Embedder | None = None,
        next_embedder: Embedder | None = None,
        reranker: Reranker | None = None,
        language_model: LanguageModel | None = None,
    ) -> None:
        """Create the models that are not given.

        Nothing is loaded or sent yet.

        Args:
            embedder: Instead of `rag.embedding`.
            next_embedder: Instead of `rag.next_embedding`.
            reranker: Instead of `rag.reranking`.
            language_model: Instead of `language_model`.

        Raises:
            ConfigError: The address or the key of a server is invalid.
        """
        self._created = ExitStack()
        with ExitStack() as on_error:
            on_error.callback(self._created.close)
            self.embedder = embedder or self._close_later(
                create_embedder(settings.rag.embedding, settings.models, "rag.embedding")
            )
            self.next_embedder = next_embedder
            if next_embedder is None and (target := settings.rag.next_embedding.embedding) is not None:
                self.next_embedder = self._close_later(create_embedder(target, settings.models, "rag.next_embedding"))
            self.reranker = reranker
            if reranker is None and settings.rag.reranking.enabled:
                self.reranker = self._close_later(_create_reranker(settings))
            self.language_model = language_model
            if language_model is None and settings.language_model.url is not None:
                self.language_model = self._close_later(ChatModel(settings.language_model))
            on_error.pop_all()

    def close(self) -> None:
        """Close the connections of the created models."""
        self._created.close()

    def _close_later(self, model: M) -> M:
        if isinstance(model, _Closeable):
            self._created.callback(model.close)
        return model


def _create_reranker(settings: Settings) -> Reranker:
    if settings.rag.reranking.url is not None:
        return ServerReranker(settings.rag.reranking)
    return CrossEncoderReranker(settings.rag.reranking, settings.models)
