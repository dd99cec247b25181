"""Options that several commands have, as one value of each command."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses: on the command line each field of theirs is an option, in the same place."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    parameters = [
        parameter
        for name, own in inspect.signature(command).parameters.items()
        for parameter in (_fields(groups[name]) if name in groups else [_parameter(name, hints[name], own.default)])
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # where typer looks
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _fields(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_parameter(field.name, hints[field.name], field.default) for field in fields(group)]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    given = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=given, annotation=annotation)
