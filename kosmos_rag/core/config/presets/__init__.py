"""Read a preset from its file and apply it to settings.

A preset may extend others.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kosmos_rag.core.config import Settings, preset_keys
from kosmos_rag.core.config.keys import nest
from kosmos_rag.core.config.preset_files import PROCESS_KEYS, check_preset_keys, list_shipped, read_preset_file
from kosmos_rag.core.errors import ConfigError

__all__ = ["Preset", "Validate", "changes", "list_shipped", "load"]

Validate: TypeAlias = Callable[[Settings], object]
"""Checks settings that this package does not know, such as signals. Raises ConfigError."""

_OF_QUESTIONS = (
    *("rag.retrieval.", "rag.reranking.enabled", "rag.reranking.top_k", "rag.reranking.threshold"),
    *("rag.reranking.deadline_ms", "rag.signals", "rag.intents"),
)
"""Keys that queries to the same documents may differ in: no access control, no audit."""
_OF_ALL_QUESTIONS = (*PROCESS_KEYS, "rag.retrieval.max_question_chars")


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

    def apply(self, settings: Settings) -> Settings:
        """Return settings with those of the preset applied.

        Raises:
            ConfigError: The result is not valid.
        """
        return settings.with_preset(self.name, self.values)


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
    name, values = read_preset_file(str(source))
    preset = Preset(name=name, content=json.dumps(values, ensure_ascii=False, default=str))
    check_preset_keys(name, preset_keys(name, values))
    merged = preset.apply(settings)
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
        _, values = read_preset_file(str(source))
    preset = Preset(name=name, content=json.dumps(values, ensure_ascii=False, default=str))
    for key in preset_keys(name, values):
        if not key.startswith(_OF_QUESTIONS) or key in _OF_ALL_QUESTIONS:
            raise ConfigError(
                f"{key} ({name}) is not a setting that single questions may differ in; "
                "change rag.retrieval, rag.reranking, rag.signals or rag.intents"
            )
    merged = preset.apply(settings)
    if merged.settings_hash == settings.settings_hash:
        raise ConfigError(f"the settings of {name} are those that questions are answered by already; change one")
    validate(merged)
    return preset


def _nest(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return nest(deepcopy(dict(values)))
    except (AttributeError, TypeError):
        raise ConfigError(f"the settings of {name} give a key and one below it; name each key once") from None
