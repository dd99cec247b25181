"""Signals built from settings: a mapping of registered names to their parameters."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.mounting import SIGNALS, load_present
from kosmos_rag.core.section import Section
from kosmos_rag.retrieval.signals.base import ScoreSignal, SelectionSignal
from kosmos_rag.retrieval.signals.rules import RULES

_Model = TypeVar("_Model", bound=Section)

SignalClass = type[ScoreSignal | SelectionSignal]


@cache
def load_signal_classes() -> Mapping[str, SignalClass]:
    """Return the signal classes by the names that `rag.signals` uses."""
    classes: dict[str, SignalClass] = dict(RULES)
    for of_wing in load_present(SIGNALS).values():
        classes |= cast("Mapping[str, SignalClass]", of_wing)
    return classes


def build_signals(parameters: Mapping[str, Any], path: str) -> dict[str, ScoreSignal | SelectionSignal]:
    """Build the signals of a mapping, in its order.

    Args:
        path: Where the mapping is in the settings, for messages: `rag.signals`.

    Raises ConfigError on an unknown name and on invalid parameters.
    """
    return {name: validate(_signal_class(name, path), values, f"{path}.{name}") for name, values in parameters.items()}


def merge_signals(signals: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Merge parameters over those of the same signals; null removes a signal."""
    merged = dict(signals)
    for name, parameters in overrides.items():
        if parameters is None:
            merged.pop(name, None)
        else:
            merged[name] = {**merged.get(name, {}), **parameters}
    return merged


def validate(model: type[_Model], values: Any, path: str) -> _Model:
    """Validate values as a model.

    Args:
        model: The class of the settings.
        values: A mapping of its fields.
        path: Where the values are in the settings, for messages.

    Raises:
        ConfigError: The values are invalid; names the path and the fault.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path} is {values!r}: it must be a mapping of {', '.join(model.model_fields)}")
    try:
        return model(**{str(key): value for key, value in values.items()})
    except ValidationError as error:
        detail = error.errors()[0]
        location = ".".join([path, *(str(part) for part in detail["loc"])])
        hint = f"; known here are {', '.join(model.model_fields)}" if detail["type"] == "extra_forbidden" else ""
        raise ConfigError(f"{location}: {detail['msg']}{hint}") from None


def _signal_class(name: str, path: str) -> SignalClass:
    classes = load_signal_classes()
    if name in classes:
        return classes[name]
    near = get_close_matches(str(name), classes, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"the signals are {', '.join(sorted(classes))}"
    raise ConfigError(f"{path}.{name} is no signal: {remedy}")
