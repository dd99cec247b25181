"""Signals read from settings: a mapping of names to parameters, each name that of a module in `kinds/`."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from pydantic import ValidationError

from kosmos_rag.core.config.values import Section
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.retrieval.signals import kinds
from kosmos_rag.retrieval.signals.base import Choosing, Scoring

_Model = TypeVar("_Model", bound=Section)


@cache
def names() -> tuple[str, ...]:
    """Return the names of all signals."""
    return tuple(sorted(module.name for module in iter_modules(kinds.__path__)))


def signals_of(given: Mapping[str, Any], place: str) -> dict[str, Scoring | Choosing]:
    """Build the signals of a mapping, in its order.

    Raises ConfigError on a name that is no signal and on parameters that it does not take.
    """
    return {name: checked(_kind(name, place), parameters, f"{place}.{name}") for name, parameters in given.items()}


def merged(signals: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay parameters over those of the same signals; null takes a signal away."""
    both = dict(signals)
    for name, parameters in over.items():
        if parameters is None:
            both.pop(name, None)
        else:
            both[name] = {**both.get(name, {}), **parameters}
    return both


def checked(model: type[_Model], values: Any, place: str) -> _Model:
    """Validate values as a model. Raises ConfigError that names the place and what is wrong there."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{place} is {values!r}: it must be a mapping of {', '.join(model.model_fields)}")
    try:
        return model(**{str(key): value for key, value in values.items()})
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join([place, *(str(part) for part in detail["loc"])])
        known = f"; known here are {', '.join(model.model_fields)}" if detail["type"] == "extra_forbidden" else ""
        raise ConfigError(f"{where}: {detail['msg']}{known}") from None


def _kind(name: str, place: str) -> type[Scoring | Choosing]:
    if name not in names():
        near = get_close_matches(str(name), names(), n=1)
        remedy = f"did you mean {near[0]}?" if near else f"the signals are {', '.join(names())}"
        raise ConfigError(f"{place}.{name} is no signal: {remedy}")
    kind: type[Scoring | Choosing] = import_module(f"{kinds.__name__}.{name}").Signal
    return kind
