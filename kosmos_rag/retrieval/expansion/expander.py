"""What is looked for beside the question's own words, as the settings say."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cachetools import LRUCache, cached

from kosmos_rag.core.config import ExpansionSettings, RagSettings
from kosmos_rag.core.errors import ConfigError, first_line
from kosmos_rag.core.protocols import LanguageModel
from kosmos_rag.core.types import Expansion
from kosmos_rag.retrieval.expansion.llm import hypothetical_passage, other_wordings
from kosmos_rag.retrieval.expansion.synonyms import Synonyms

T = TypeVar("T")


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
    """Return the settings without what a leg of no weight would be asked: it changes nothing and takes time."""
    without = {
        "synonyms": None if rag.retrieval.keyword_weight == 0 else rag.expansion.synonyms,
        "hyde": rag.expansion.hyde and rag.retrieval.semantic_weight > 0,
    }
    return rag.expansion.model_copy(update=without)


class Expander:
    """Expands questions. What a language model wrote is kept for when the question is asked again. Thread-safe."""

    def __init__(self, rag: RagSettings, model: LanguageModel | None) -> None:
        """Load the synonyms.

        Raises ConfigError: a broken file, or no language model where one is needed.
        """
        settings, kept = _effective_settings(rag), rag.retrieval.query_embedding_cache
        self._synonyms = Synonyms.load(settings.synonyms) if settings.synonyms else None
        wanted = [key for key in ("queries", "hyde") if getattr(settings, key)]
        if wanted and model is None:
            raise ConfigError(
                f"rag.expansion.{wanted[0]} needs a language model; set language_model.url, or give the engine one"
            )

        def wordings(question: str) -> tuple[str, ...]:
            assert model is not None, "checked above"
            return other_wordings(model, question, settings.queries)

        def passage(question: str) -> str:
            assert model is not None, "checked above"
            return hypothetical_passage(model, question)

        def keeping(call: Callable[[str], T]) -> Callable[[str], T]:
            return cached(LRUCache(maxsize=kept), lock=threading.Lock())(call)

        self._wordings = keeping(wordings) if settings.queries else None
        self._passage = keeping(passage) if settings.hyde else None

    @property
    def enabled(self) -> bool:
        """Whether anything is added to queries."""
        return any((self._synonyms, self._wordings, self._passage))

    def expand(self, question: str) -> ExpandedQuery:
        """Return what else to look for.

        Where the language model fails, the question stands as it is, with a note.
        """
        notes: list[str] = []

        def tried(call: Callable[[str], T] | None, otherwise: T, missing: str) -> T:
            if call is None:
                return otherwise
            try:
                return call(question)
            except Exception as error:  # noqa: BLE001 — whatever a model of the caller raises, the question can be asked
                notes.append(f"{missing}: {first_line(error)}")
                return otherwise

        expansion = Expansion(
            synonyms=self._synonyms.expand(question) if self._synonyms else (),
            wordings=tried(self._wordings, (), "no other wordings"),
            passage=tried(self._passage, None, "no hypothetical passage"),
        )
        return ExpandedQuery(expansion=expansion, warnings=tuple(notes))
