"""The kinds of values that keys take, and what a section is."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator, ConfigDict, Strict
from pydantic.types import AllowInfNan

MAX_INTEGER = 2**31 - 1
"""The upper bound of integers without a narrower one: PostgreSQL's, for many go into statements."""


def _expand_path(kind: str) -> Callable[[Any], Path]:
    def expand(path: Any) -> Path:
        # Path("") is the working folder, which nobody means by leaving a value empty.
        if not isinstance(path, str | Path) or not str(path).strip():
            raise ValueError(f"it must name a {kind}")
        try:
            return Path(path).expanduser()
        except RuntimeError:
            raise ValueError(f"it must name a {kind} of a user that exists") from None

    return expand


# Strict: a YAML `true` is not the number 1. Text from the environment is converted before it comes here.
Switch = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Ge(1), Le(MAX_INTEGER)]
Amount = Annotated[int, Strict(), Ge(0), Le(MAX_INTEGER)]
Share = Annotated[float, Strict(), Ge(0), Le(1)]
Weight = Annotated[float, Strict(), Ge(0), Le(1000), AllowInfNan(False)]
Folder = Annotated[Path, BeforeValidator(_expand_path("folder"))]
File = Annotated[Path, BeforeValidator(_expand_path("file"))]


class Section(BaseModel):
    """A frozen group of keys that refuses unknown names."""

    key_source: ClassVar[str | None] = None
    """Another section, whose keys this one has too: the documentation has them there alone."""

    # Input stays out of pydantic's messages because a URL may hold a password.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
