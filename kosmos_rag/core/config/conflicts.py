"""Report values that are valid alone but not together.

The error is one that pydantic carries to the loader.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_core import PydanticCustomError

from kosmos_rag.core.config.display import show

CONFLICT = "conflict"
"""The type of the pydantic error; its context holds the conflicts under this name."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Conflicting keys of one section, with the remedy."""

    keys: tuple[str, ...]
    remedy: str


def refuse(section: BaseModel, conflicts: Sequence[Conflict]) -> None:
    """Raise one pydantic error that carries all conflicts, if there are any."""
    if not conflicts:
        return
    lines = []
    for conflict in conflicts:
        values = " and ".join(f"{key} is {show(getattr(section, key))}" for key in conflict.keys)
        lines.append(f"{values}: {conflict.remedy}")
    raise PydanticCustomError(CONFLICT, "{text}", {"text": "; ".join(lines), CONFLICT: tuple(conflicts)})
