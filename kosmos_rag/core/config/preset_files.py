"""Read presets from files, with the presets that they extend.

Presets are shipped with the package, or files of the user.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from kosmos_rag.core.config.loading import read_yaml
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.mounting import PRESETS, is_present

_PACKAGE = "kosmos_rag.core.config.presets"
EXTENDS = "extends"
COLLECTION_KEYS = (
    *("rag.chunking.", "rag.retrieval.", "rag.reranking.enabled", "rag.reranking.top_k", "rag.reranking.threshold"),
    *("rag.reranking.deadline_ms", "rag.context.", "rag.access.", "rag.answer.", "rag.audit.", "rag.signals"),
    *("rag.intents", "ingestion.language"),
)
"""Keys that a preset may set. The others apply to all collections of the process: models, caches."""
PROCESS_KEYS = ("rag.retrieval.query_embedding_cache", "rag.retrieval.result_cache")
_NULL_REMOVES = (("rag", "signals"), ("rag", "intents"))


def list_shipped() -> list[str]:
    """Return the names of the presets that come with the library."""
    return sorted(_shipped_files())


def _shipped_files() -> dict[str, Traversable]:
    packages = [_PACKAGE, *(package for package in PRESETS if is_present(package))]
    entries = [entry for package in packages for entry in files(package).iterdir() if _is_yaml(entry.name)]
    return {entry.name.removesuffix(".yaml"): entry for entry in entries}


def read_preset_file(source: str) -> tuple[str, dict[str, Any]]:
    """Read name and values of a preset, merged with those it extends.

    Args:
        source: Name of a shipped preset, or path of a YAML file.

    Raises:
        ConfigError: The name is unknown, a file cannot be read, or presets extend each other in a circle.
    """
    return _read(source, Path(), ())


def check_preset_keys(name: str, keys: Iterable[str]) -> None:
    """Raise ConfigError unless a preset may set these keys."""
    for key in keys:
        if not key.startswith(COLLECTION_KEYS) or key in PROCESS_KEYS:
            raise ConfigError(f"{key} (preset {name}) is not a setting of a collection: set it in rag-config.yaml")


def _read(source: str, folder: Path, extended_by: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Read name and values of a preset, merged with those it extends."""
    if _is_yaml(source):
        path = folder / Path(source).expanduser()
        name, identity = path.stem, str(path.resolve())
        data = read_yaml(path, f"preset {path}")
    else:
        if source not in list_shipped():
            raise ConfigError(
                f"there is no preset {source!r}; "
                f"use {', '.join(list_shipped())} or the path of a YAML file, ./mine.yaml"
            )
        name = identity = source
        with as_file(_shipped_files()[source]) as path:
            data = read_yaml(path, f"preset {source}")
    if identity in extended_by:
        circle = " extends ".join([*extended_by[extended_by.index(identity) :], identity])
        raise ConfigError(f"presets extend each other in a circle: {circle}; remove one of these lines")
    if not isinstance(data, dict):
        raise ConfigError(f"preset {name} contains {data!r}: its top level must be a mapping of settings")
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
