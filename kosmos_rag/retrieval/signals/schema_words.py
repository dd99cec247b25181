"""What a document of a schema is called, and how far a question says it."""

import re
from functools import lru_cache

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked
from kosmos_rag.retrieval.signals.words import words

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

MODEL, COLUMN, RECIPE = "schema_model", "schema_column", "query_recipe"


def kind(passage: Passage) -> str:
    """Return the kind of a document of a schema; empty for any other document."""
    return str(passage.metadata.get("kind", ""))


@lru_cache(maxsize=20_000)
def name_words(name: str) -> frozenset[str]:
    """Return the words of a name that carry meaning."""
    return words(_CAMEL.sub(" ", name))


def said(asked: Asked, passage: Passage, key: str) -> bool:
    """Whether the question says every word of the name that the metadata holds under a key."""
    name = name_words(str(passage.metadata.get(key, "")))
    return bool(name) and name <= asked.words


def any_said(asked: Asked, passage: Passage) -> bool:
    """Whether the question says any word of the document's names or keywords."""
    of = passage.metadata.get
    names = (of("table", ""), of("model", ""), of("column", ""), *of("keywords", ()))
    return not _words_of(tuple(map(str, names))).isdisjoint(asked.words)


@lru_cache(maxsize=20_000)
def _words_of(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset[str]().union(*map(name_words, names))


def meaning(passage: Passage) -> float:
    """Return the cosine of the passage to the question; 0 where only words found it."""
    return passage.dense_score or 0.0
