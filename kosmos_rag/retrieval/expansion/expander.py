"""Expand queries by the settings of `rag.expansion`."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cachetools import LRUCache, cached

from kosmos_rag.core.config import ExpansionSettings, RagSettings
from kosmos_rag.core.errors import ConfigError, reader_message
from kosmos_rag.core.protocols import LanguageModel
from kosmos_rag.core.types import Expansion
from kosmos_rag.retrieval.expansion.llm import hypothetical_passage, other_wordings
from kosmos_rag.retrieval.expansion.synonyms import Synonyms

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpandedQuery:
    """An expansion, and warnings about parts that failed."""

    expansion: Expansion
    warnings: tuple[str, ...]


NOT_EXPANDED = ExpandedQuery(expansion=Expansion(), warnings=())


def create_expander(rag: RagSettings, model: LanguageModel | None) -> "Expander | None":
    """Create the expander of these settings; None if they expand nothing.

    Raises ConfigError.
    """
    expander = Expander(rag, model)
    return expander if expander.enabled else None


def _effective_settings(rag: RagSettings) -> ExpansionSettings:
    """Return the settings without expansion for retrievers of weight 0."""
    update = {
        "synonyms": None if rag.retrieval.keyword_weight == 0 else rag.expansion.synonyms,
        "hyde": rag.expansion.hyde and rag.retrieval.semantic_weight > 0,
    }
    return rag.expansion.model_copy(update=update)


class Expander:
    """Expands questions by synonyms and a language model. Thread-safe.

    The output of the model is cached by question.
    """

    def __init__(self, rag: RagSettings, model: LanguageModel | None) -> None:
        """Load the synonyms.

        Raises ConfigError: a broken file, or no language model where one is needed.
        """
        settings, cache_size = _effective_settings(rag), rag.retrieval.query_embedding_cache
        self._synonyms = Synonyms.load(settings.synonyms) if settings.synonyms else None
        generated = [key for key in ("queries", "hyde") if getattr(settings, key)]
        if generated and model is None:
            raise ConfigError(
                f"rag.expansion.{generated[0]} needs a language model; set language_model.url, or give the engine one"
            )

        def wordings(question: str) -> tuple[str, ...]:
            assert model is not None, "checked above"
            return other_wordings(model, question, settings.queries)

        def passage(question: str) -> str:
            assert model is not None, "checked above"
            return hypothetical_passage(model, question)

        def cache(call: Callable[[str], T]) -> Callable[[str], T]:
            return cached(LRUCache(maxsize=cache_size), lock=threading.Lock())(call)

        self._wordings = cache(wordings) if settings.queries else None
        self._passage = cache(passage) if settings.hyde else None

    @property
    def enabled(self) -> bool:
        """Whether anything is added to queries."""
        return any((self._synonyms, self._wordings, self._passage))

    def expand(self, question: str) -> ExpandedQuery:
        """Expand a question.

        If the language model fails, the expansion lacks its part and has a warning.
        """
        warnings: list[str] = []

        def run(call: Callable[[str], T] | None, default: T, warning: str) -> T:
            if call is None:
                return default
            try:
                return call(question)
            except Exception as error:  # noqa: BLE001 — whatever a model of the caller raises, the question can be asked
                logger.warning("%s: %s", warning, error, extra={"action": "expansion_failed"})
                warnings.append(f"{warning}: {reader_message(error)}")
                return default

        expansion = Expansion(
            synonyms=self._synonyms.expand(question) if self._synonyms else (),
            wordings=run(self._wordings, (), "no other wordings"),
            passage=run(self._passage, None, "no hypothetical passage"),
        )
        return ExpandedQuery(expansion=expansion, warnings=tuple(warnings))
