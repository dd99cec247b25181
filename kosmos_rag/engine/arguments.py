"""Name the argument of a wrong type by which a call of the library failed."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal, TypeVar, Union

from kosmos_rag.core.errors import RequestError, StatementFailed

T = TypeVar("T")


def name_wrong_arguments(*, unless: str | None = None) -> Callable[[type[T]], type[T]]:
    """Make the public methods of a class raise RequestError for an argument of a wrong type.

    Types are compared only after a call failed with an error of Python or of a statement: a call that succeeds costs
    nothing more.

    Args:
        unless: A method that refuses wrong arguments itself, so that a question runs one function less.
    """

    def wrap(kind: type[T]) -> type[T]:
        for name, method in list(vars(kind).items()):
            if inspect.isfunction(method) and not name.startswith("_") and name != unless:
                setattr(kind, name, _wrap(method))
        return kind

    return wrap


def _wrap(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except (TypeError, ValueError, AttributeError, StatementFailed) as error:
            if (name := _find_wrong(method, args, kwargs)) is None:
                raise
            value = inspect.signature(method).bind(*args, **kwargs).arguments[name]
            expected = inspect.formatannotation(inspect.signature(method).parameters[name].annotation)
            raise RequestError(
                f"{method.__qualname__} takes no {type(value).__name__} as {name}; give {expected}"
            ) from error

    return call


def _find_wrong(method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Return the first argument whose value is not of the type of its annotation."""
    hints = typing.get_type_hints(method)
    try:
        arguments = inspect.signature(method).bind(*args, **kwargs).arguments
    except TypeError:  # too many, or too few
        return None
    return next((name for name, value in arguments.items() if name in hints and not _fits(value, hints[name])), None)


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type, with the elements of lists and tuples."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in {Union, types.UnionType}:
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    kind = origin or hint
    if not isinstance(kind, type):
        return True  # Any
    if not isinstance(value, (float, int) if kind is float else kind):
        return False
    if parts and isinstance(value, list | tuple):
        kinds = parts if kind is tuple and parts[-1] is not ... else parts[:1] * len(value)
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    return not (parts and isinstance(value, bytes | str))  # a sequence of numbers or characters, which no call takes
