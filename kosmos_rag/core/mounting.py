"""Mount packages that may be absent.

A wing is a package of this library that may be removed. What mounts wings names their modules as text and skips the
absent ones. Importing this module is cheap: each `import kosmos_rag` does it.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

SECTIONS: dict[str, str] = {}
"""Sections of the settings that wings add: `module:model` by key. `kosmos_rag.wings` fills it before it is read."""
QUERY_HOOKS: dict[str, str] = {}
"""What wings add to the handling of queries: `module:factory` by wing. `kosmos_rag.wings` fills it too."""

SIGNALS: dict[str, str] = {}
"""Signals of the ranking that wings add: `module:mapping` by wing."""
METRICS: dict[str, str] = {}
"""Metrics that wings add, by what exports them: `module:mapping` by wing."""
PRESETS: list[str] = []
"""Packages of wings with presets."""


def register_extensions(
    *,
    sections: Mapping[str, str],
    signals: Mapping[str, str],
    metrics: Mapping[str, str],
    presets: Iterable[str],
    query_hooks: Mapping[str, str],
) -> None:
    """Register what wings add; nothing is imported yet.

    Args:
        sections: Sections of the settings, for `SECTIONS`.
        signals: Signals of the ranking, for `SIGNALS`.
        metrics: Metrics, for `METRICS`.
        presets: Packages with presets, for `PRESETS`.
        query_hooks: Additions to queries, for `QUERY_HOOKS`.
    """
    SECTIONS.update(sections)
    SIGNALS.update(signals)
    METRICS.update(metrics)
    PRESETS.extend(presets)
    QUERY_HOOKS.update(query_hooks)


def is_present(module: str) -> bool:
    """Return whether the wing of a module is part of this installation."""
    spec = find_spec(".".join(module.split(".")[:2]))
    # A folder without files, which Python takes for a namespace package, has no origin.
    return spec is not None and spec.origin is not None


def import_present(modules: Iterable[str]) -> list[ModuleType]:
    """Import the modules whose wings are present, in this order."""
    return [import_module(module) for module in modules if is_present(module)]


def load_present(paths: Mapping[str, str]) -> dict[str, object]:
    """Load `module:name` by key, of the wings that are present."""
    loaded = {}
    for key, path in paths.items():
        module, _, name = path.partition(":")
        if is_present(module):
            loaded[key] = getattr(import_module(module), name)
    return loaded
