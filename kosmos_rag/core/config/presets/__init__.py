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
"""Keys that queries to the same documents may differ in: no access control, no audit."""
_OF_ALL_QUESTIONS = (*_OF_PROCESSES, "rag.retrieval.max_question_chars")
_NULL_REMOVES = (("rag", "signals"), ("rag", "intents"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """Settings of a collection, with those of the presets it extends."""

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

    def apply_to(self, settings: Settings) -> Settings:
        """Return settings with those of the preset applied.

        Raises:
            ConfigError: The result is not valid.
        """
        return settings.with_preset(self.name, self.values)


def shipped() -> list[str]:
    """Return the names of the presets that come with the library."""
    return sorted(entry.name.removesuffix(".yaml") for entry in files(__package__).iterdir() if _is_yaml(entry.name))


def load(source: str | Path, settings: Settings, *, validate: Validate) -> Preset:
    """Load a preset by name or path, and validate it.

    Args:
        source: Name of a shipped preset, or path of a YAML file.
        settings: Settings that the preset is applied to.
        validate: Validates the result, beyond the settings' own checks.

    Raises:
        ConfigError: The name is unknown, a file cannot be read, presets extend each other in a circle, or a key is
            unknown, malformed, or not one of collections.
    """
    name, values = _read(str(source), Path(), ())
    preset = Preset(name=name, content=json.dumps(values, ensure_ascii=False, default=str))
    for key in preset_keys(name, values):
        if not key.startswith(_OF_COLLECTIONS) or key in _OF_PROCESSES:
            raise ConfigError(f"{key} (preset {name}) is not a setting of a collection: set it in rag-config.yaml")
    merged = preset.apply_to(settings)
    rag = merged.rag
    if rag.answer.template != settings.rag.answer.template and rag.answer.template.endswith(".j2"):
        raise ConfigError(
            f"rag.answer.template of the preset {name} is {rag.answer.template}: a preset is stored without files that "
            "it names; name a template that comes with the library, or set it in rag-config.yaml"
        )
    validate(merged)
    return preset


def changes(name: str, source: str | Path | Mapping[str, Any], settings: Settings, *, validate: Validate) -> Preset:
    """Load changed settings for queries, as a preset.

    Args:
        name: Name of the changes, for messages.
        source: Path of a YAML file, or values by dotted key.
        settings: Settings that the changes are applied to.
        validate: Validates the result, beyond the settings' own checks.

    Raises:
        ConfigError: The changes have no effect, or name a key that queries cannot differ in; else as `load`.
    """
    if isinstance(source, Mapping):
        values = _nest(name, source)
    else:
        _, values = _read(str(source), Path(), ())
    preset = Preset(name=name, content=json.dumps(values, ensure_ascii=False, default=str))
    for key in preset_keys(name, values):
        if not key.startswith(_OF_QUESTIONS) or key in _OF_ALL_QUESTIONS:
            raise ConfigError(
                f"{key} ({name}) is not a setting that single questions may differ in; "
                "change rag.retrieval, rag.reranking, rag.signals or rag.intents"
            )
    merged = preset.apply_to(settings)
    if merged.settings_hash == settings.settings_hash:
        raise ConfigError(f"the settings of {name} are those that questions are answered by already; change one")
    validate(merged)
    return preset


def _nest(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return nest(deepcopy(dict(values)))
    except (AttributeError, TypeError):
        raise ConfigError(f"the settings of {name} give a key and one below it; name each key once") from None


def _read(source: str, folder: Path, extended_by: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Read name and values of a preset, merged with those it extends."""
    if _is_yaml(source):
        path = folder / Path(source).expanduser()
        name, identity = path.stem, str(path.resolve())
        data = read_yaml(path, f"preset {path}")
    else:
        if source not in shipped():
            raise ConfigError(
                f"there is no preset {source!r}; use {', '.join(shipped())} or the path of a YAML file, ./mine.yaml"
            )
        name = identity = source
        with as_file(files(__package__) / f"{source}.yaml") as path:
            data = read_yaml(path, f"preset {source}")
    if identity in extended_by:
        circle = " extends ".join([*extended_by[extended_by.index(identity) :], identity])
        raise ConfigError(f"presets extend each other in a circle: {circle}; take one of these lines out")
    if not isinstance(data, dict):
        raise ConfigError(f"preset {name} holds {data!r}: its top level must be a mapping of settings")
    base = data.pop(EXTENDS, None)
    if base is None:
        return name, _merge({}, data, ())
    if not isinstance(base, str):
        raise ConfigError(f"{EXTENDS} of the preset {name} is {base!r}: name one preset")
    return name, _merge(_read(base, path.parent, (*extended_by, identity))[1], data, ())


def _merge(base: Mapping[Any, Any], over: Mapping[Any, Any], path: tuple[str, ...]) -> dict[Any, Any]:
    """Merge a mapping over another, recursively.

    In signals and intents null removes an entry.
    """
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping):
            nested = merged.get(key)
            merged[key] = _merge(nested if isinstance(nested, Mapping) else {}, value, (*path, key))
        elif value is None and path in _NULL_REMOVES:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def _is_yaml(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))
