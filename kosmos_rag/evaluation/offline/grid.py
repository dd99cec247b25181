"""Grid search: every combination of the values of some settings."""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import yaml

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.keys import iter_keys
from kosmos_rag.core.errors import RequestError

Changes = Mapping[str, Any]
"""Setting values by dotted key."""


def parse_grid(options: Sequence[str]) -> list[Changes]:
    """Return each combination of options `key=value,value`; the prefix `rag.` is optional.

    Returns one empty combination without options. Raises RequestError on another form; the settings validate keys and
    values.
    """
    axes = [_axis(option) for option in options]
    keys = [key for key, _ in axes]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise RequestError(f"--grid names {twice} twice; give all its values at once, {twice}=1,2")
    return [dict(zip(keys, values, strict=True)) for values in product(*(values for _, values in axes))]


def _axis(option: str) -> tuple[str, list[Any]]:
    key, equals, values = option.partition("=")
    try:
        parsed = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError:
        parsed = None
    if not equals or not key.strip() or not parsed:
        raise RequestError(f"--grid {option!r} is not KEY=VALUE,VALUE; write --grid retrieval.semantic_weight=0.5,0.7")
    return _full(key.strip()), parsed


def _full(key: str) -> str:
    keys = {name for name, _ in iter_keys(Settings)}
    return f"rag.{key}" if key not in keys and f"rag.{key}" in keys else key


def label(changes: Changes) -> str:
    """Return the label of a configuration: its changes, without the prefix `rag.`."""
    parts = [f"{key.removeprefix('rag.')}={value}" for key, value in changes.items()]
    return " ".join(parts) or "as configured"


def require_applied(changed: Settings, settings: Settings, changes: Changes) -> None:
    """Raise RequestError if changes have no effect on the settings in use.

    Args:
        changed: Settings with the changes of a grid applied, before the preset.
        settings: Settings that queries use, under the preset of the collection.
    """
    for key in changes:
        requested, actual = (reduce(getattr, key.split("."), version) for version in (changed, settings))
        if requested != actual:
            raise RequestError(
                f"{key} is {actual!r} and cannot be {requested!r}: the preset of the collection sets it, or "
                "each evaluation does (docs/evaluation.md); leave it out, or ask a collection without a preset"
            )
