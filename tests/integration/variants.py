"""Engines over a test's database with some settings changed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TypeVar

from pydantic import BaseModel

from kosmos_rag import Engine, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder

M = TypeVar("M", bound=BaseModel)
HAS_MEMORY_VIEW = find_spec("kosmos_rag.retrieval.views.memory") is not None
"""Whether the view of the memory is there: its module is optional."""


def changed(settings: M, overrides: Mapping[str, Any]) -> M:
    """Return settings with other values, by dotted key; a key that is no setting fails the test."""
    for key, value in overrides.items():
        name, _, rest = key.partition(".")
        assert name in type(settings).model_fields, f"{name} is not a setting of {type(settings).__name__}"
        new = changed(getattr(settings, name), {rest: value}) if rest else value
        settings = settings.model_copy(update={name: new})
    return settings


@contextmanager
def opened(settings: Settings, overrides: Mapping[str, Any], **models: Any) -> Iterator[Engine]:
    """Open an engine with other values and these models; vectors are made of words where no embedder is given."""
    with Engine(changed(settings, overrides), **{"embedder": HashingEmbedder(), **models}) as engine:
        yield engine
