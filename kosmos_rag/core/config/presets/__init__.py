"""A preset read from its file, with what it extends, and laid over settings."""

import hashlib
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeAlias

from kosmos_rag.core.config import Settings, preset_keys
from kosmos_rag.core.config.keys import nest
from kosmos_rag.core.config.loading import read_yaml
from kosmos_rag.core.errors import ConfigError

Validate: TypeAlias = Callable[[Settings], object]
"""Checks settings that this package does not know, such as signals. Raises ConfigError."""

EXTENDS = "extends"
_OF_COLLECTIONS = (
    *("rag.chunking.", "rag.retrieval.", "rag.reranking.enabled", "rag.reranking.top_k", "rag.reranking.threshold"),
    *("rag.reranking.deadline_ms", "rag.context.", "rag.access.", "rag.answer.", "rag.audit.", "rag.signals"),
    *("rag.intents", "ingestion.language"),
)
"""Keys that a preset may set. The others say what the process does for all collections alike: models, caches."""
_OF_PROCESSES = ("rag.retrieval.query_embedding_cache", "rag.retrieval.result_cache")
_OF_QUESTIONS = (
    *("rag.retrieval.", "rag.reranking.enabled", "rag.reranking.top_k", "rag.reranking.threshold"),
    *("rag.reranking.deadline_ms", "rag.signals", "rag.intents"),
)
"""Keys that two questions to the same documents may differ in: nothing of who may read, and nothing of the log."""
_OF_ALL_QUESTIONS = (*_OF_PROCESSES, "rag.retrieval.max_question_chars")
_NULL_REMOVES = (("rag", "signals"), ("rag", "intents"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """Settings of a collection, with all that their file extends."""

    name: str
    content: str
    """The settings as JSON, in their order."""

    @property
    def version(self) -> str:
        """A hash of the content: equal means the same settings."""
        return hashlib.sha256(self.content.encode()).hexdigest()[:16]

    @property
    def values(self) -> dict[str, Any]:
        """The settings, nested."""
        parsed: dict[str, Any] = json.loads(self.content)
        return parsed

    def over(self, settings: Settings) -> Settings:
        """Return settings with these laid over them.

        Raises ConfigError where they cannot be.
        """
        return settings.under_preset(self.name, self.values)


def shipped() -> list[str]:
    """Return the names of the presets that come with the library."""
    return sorted(entry.name.removesuffix(".yaml") for entry in files(__package__).iterdir() if _is_yaml(entry.name))


def load(given: str | Path, settings: Settings, *, validate: Validate) -> Preset:
    """Read a preset by the name of a shipped one, or by the path of a YAML file, and check it over these settings.

    Raises ConfigError where the name is unknown, a file cannot be read, presets extend each other in a circle, or a key
    is unknown, malformed, or not one of collections.
    """
    name, values = _read(str(given), Path(), ())
    preset = Preset(name=name, content=json.dumps(values, ensure_ascii=False, default=str))
    for key in preset_keys(name, values):
        if not key.startswith(_OF_COLLECTIONS) or key in _OF_PROCESSES:
            raise ConfigError(f"{key} (preset {name}) is not a setting of a collection: set it in rag-config.yaml")
    laid = preset.over(settings)
    rag = laid.rag
    if rag.answer.template != settings.rag.answer.template and rag.answer.template.endswith(".j2"):
        raise ConfigError(
            f"rag.answer.template of the preset {name} is {rag.answer.template}: a preset is stored without files that "
            "it names; name a template that comes with the library, or set it in rag-config.yaml"
        )
    validate(laid)
    return preset


def changes(name: str, given: str | Path | Mapping[str, Any], settings: Settings, *, validate: Validate) -> Preset:
    """Return settings that questions may be answered by in the place of these: a YAML file, or values by dotted key.

    Raises ConfigError where they change nothing, and as `load` does, of keys that are none of a question's.
    """
    if isinstance(given, Mapping):
        values = _nested(name, given)
    else:
        _, values = _read(str(given), Path(), ())
    preset = Preset(name=name, content=json.dumps(values, ensure_ascii=False, default=str))
    for key in preset_keys(name, values):
        if not key.startswith(_OF_QUESTIONS) or key in _OF_ALL_QUESTIONS:
            raise ConfigError(
                f"{key} ({name}) is not a setting that single questions may differ in; "
                "change rag.retrieval, rag.reranking, rag.signals or rag.intents"
            )
    laid = preset.over(settings)
    if laid.settings_hash == settings.settings_hash:
        raise ConfigError(f"the settings of {name} are those that questions are answered by already; change one")
    validate(laid)
    return preset


def _nested(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return nest(deepcopy(dict(given)))
    except (AttributeError, TypeError):
        raise ConfigError(f"the settings of {name} give a key and one below it; name each key once") from None


def _read(given: str, folder: Path, extended_by: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the name and the values of a preset with those that it extends."""
    if _is_yaml(given):
        path = folder / Path(given).expanduser()
        name, place = path.stem, str(path.resolve())
        data = read_yaml(path, f"preset {path}")
    else:
        if given not in shipped():
            raise ConfigError(
                f"there is no preset {given!r}; use {', '.join(shipped())} or the path of a YAML file, ./mine.yaml"
            )
        name = place = given
        with as_file(files(__package__) / f"{given}.yaml") as path:
            data = read_yaml(path, f"preset {given}")
    if place in extended_by:
        circle = " extends ".join([*extended_by[extended_by.index(place) :], place])
        raise ConfigError(f"presets extend each other in a circle: {circle}; take one of these lines out")
    if not isinstance(data, dict):
        raise ConfigError(f"preset {name} holds {data!r}: its top level must be a mapping of settings")
    base = data.pop(EXTENDS, None)
    if base is None:
        return name, _merged({}, data, ())
    if not isinstance(base, str):
        raise ConfigError(f"{EXTENDS} of the preset {name} is {base!r}: name one preset")
    return name, _merged(_read(base, path.parent, (*extended_by, place))[1], data, ())


def _merged(base: Mapping[Any, Any], over: Mapping[Any, Any], place: tuple[str, ...]) -> dict[Any, Any]:
    """Lay one mapping over another, level by level.

    Of signals and intents, null takes one away.
    """
    both = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping):
            below = both.get(key)
            both[key] = _merged(below if isinstance(below, Mapping) else {}, value, (*place, key))
        elif value is None and place in _NULL_REMOVES:
            both.pop(key, None)
        else:
            both[key] = value
    return both


def _is_yaml(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))
