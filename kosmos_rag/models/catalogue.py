"""The models of catalogue.yaml: which fit a language and a machine, and how they are configured."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

Use = Literal["embedding", "reranking"]
Machine = Literal["processor", "gpu", "server"]

_EVERY_LANGUAGE = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedFigure:
    """What a model's card says. Figures of different measures do not compare."""

    measure: str
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedModel:
    """A model of the hub, with what its configuration needs."""

    use: Use
    name: str
    languages: tuple[str, ...]
    """ISO 639-1 codes; `*` for about a hundred languages."""
    million: int
    """Parameters, in millions."""
    max_tokens: int
    licence: str
    runs_on: tuple[Machine, ...]
    dimensions: int | None = None
    """Of an embedding."""
    query_prefix: str = ""
    passage_prefix: str = ""
    matryoshka: tuple[int, ...] = ()
    """Fewer dimensions that the model was trained for."""
    published: PublishedFigure | None = None
    note: str = ""

    def knows(self, language: str) -> bool:
        """Return whether the model was trained for a language."""
        return language in self.languages or _EVERY_LANGUAGE in self.languages

    def fits(self, language: str, machine: Machine) -> bool:
        """Return whether the model knows the language and runs there at a usual speed."""
        return machine in self.runs_on and self.knows(language)

    def settings(self) -> dict[str, Any]:
        """Return the keys of `rag.embedding` or `rag.reranking` that the model needs."""
        keys: dict[str, Any] = {"model": self.name}
        if self.use == "reranking":
            return {"enabled": True, **keys}
        keys["dimensions"] = self.dimensions
        prefixes = {"query_prefix": self.query_prefix, "passage_prefix": self.passage_prefix}
        return keys | {name: prefix for name, prefix in prefixes.items() if prefix}


@cache
def load_catalogue() -> tuple[ListedModel, ...]:
    """Return all models of the file, in its order: those that are shown first are preferred."""
    content = yaml.safe_load((files("kosmos_rag.models") / "catalogue.yaml").read_text(encoding="utf-8"))
    uses: tuple[Use, ...] = ("embedding", "reranking")
    return tuple(_parse(use, entry) for use in uses for entry in content[use])


def recommend_models(language: str, machine: Machine) -> Sequence[ListedModel]:
    """Return the models that fit, those preferred first."""
    return [model for model in load_catalogue() if model.fits(language, machine)]


def find_listed(name: str, use: Use) -> ListedModel | None:
    """Return the model of a configuration, or None where the file does not have it."""
    # Both packaged models are one, in two precisions.
    names = {name, f"sentence-transformers/{name}", f"{name}-int8"}
    return next((model for model in load_catalogue() if model.use == use and model.name in names), None)


def list_languages(name: str, use: Use) -> tuple[str, ...]:
    """Return the codes of a model's languages; none where they are unknown, or about a hundred."""
    listed = find_listed(name, use)
    return () if listed is None or _EVERY_LANGUAGE in listed.languages else listed.languages


def _parse(use: Use, entry: dict[str, Any]) -> ListedModel:
    published = entry.pop("published", None)
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return ListedModel(use=use, published=PublishedFigure(**published) if published else None, **(entry | lists))
