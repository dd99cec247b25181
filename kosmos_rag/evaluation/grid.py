"""Configurations that are tried one after the other: every combination of the values given."""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import yaml

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.keys import keys_of
from kosmos_rag.core.errors import RequestError

Changes = Mapping[str, Any]
"""Values by dotted key, that replace those of the settings."""


def parse_grid(given: Sequence[str]) -> list[Changes]:
    """Return each combination of `key=value,value`; `rag.` before a key may be left out. One empty one for none.

    Raises RequestError on another form. Whether keys and values are any is for the settings to say.
    """
    axes = [_axis(entry) for entry in given]
    keys = [key for key, _ in axes]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise RequestError(f"--grid names {twice} twice; give all its values at once, {twice}=1,2")
    return [dict(zip(keys, values, strict=True)) for values in product(*(values for _, values in axes))]


def _axis(entry: str) -> tuple[str, list[Any]]:
    key, equals, values = entry.partition("=")
    try:
        listed = yaml.safe_load(f"[{values}]")
    except yaml.YAMLError:
        listed = None
    if not equals or not key.strip() or not listed:
        raise RequestError(f"--grid {entry!r} is not KEY=VALUE,VALUE; write --grid retrieval.semantic_weight=0.5,0.7")
    return _full(key.strip()), listed


def _full(key: str) -> str:
    known = {name for name, _ in keys_of(Settings)}
    return f"rag.{key}" if key not in known and f"rag.{key}" in known else key


def label(changes: Changes) -> str:
    """Return what is told of a configuration: its changes, without the way to the keys."""
    told = [f"{key.removeprefix('rag.')}={value}" for key, value in changes.items()]
    return " ".join(told) or "as configured"


def require_applied(wanted: Settings, settings: Settings, changes: Changes) -> None:
    """Raise RequestError where changes of `wanted` have no effect on the settings that questions go by."""
    for key in changes:
        asked_for, stays = (reduce(getattr, key.split("."), held) for held in (wanted, settings))
        if asked_for != stays:
            raise RequestError(
                f"{key} stays {stays!r} and does not become {asked_for!r}: the preset of the collection sets it, or "
                "each evaluation does (docs/evaluation.md); leave it out, or ask a collection without a preset"
            )
