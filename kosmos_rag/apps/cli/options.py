"""Shared options of commands.

A decorator adds them and the error handling to a command.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from kosmos_rag.apps.cli.common import fail, overrides
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.core.telemetry.logging import set_up_logging

if TYPE_CHECKING:
    from kosmos_rag.core.config import Settings
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.engine.tenant import Tenant

ReadCollectionOption = Annotated[
    str | None, typer.Option("--collection", "-C", metavar="NAME", help="Only this collection; default: all.")
]
WriteCollectionOption = Annotated[
    str | None, typer.Option("--collection", "-C", metavar="NAME", help="The collection; default: default.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommonOptions:
    """The options of every command that loads settings."""

    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Settings file; default: KOSMOS_CONFIG, then ./rag-config.yaml."),
    ] = None
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be repeated.")
    ] = None
    as_json: JsonOption = False

    def load_settings(self, *extra: str) -> "Settings":
        """Load the settings and set up logging; `extra` are further KEY=VALUE overrides."""
        from kosmos_rag.core.config import Settings

        settings = Settings.load(self.config, overrides=overrides([*(self.set_ or ()), *extra]))
        set_up_logging(settings.observability)
        return settings

    @contextmanager
    def open_engine(self) -> "Iterator[Engine]":
        """Open an engine for the block."""
        settings = self.load_settings()
        from kosmos_rag.engine.engine import Engine

        with Engine.open(settings) as engine:
            yield engine

    @property
    def on_step(self) -> Callable[[str], None] | None:
        """Prints a step of a long operation to the standard error; None with `--json`."""
        return None if self.as_json else _print_step


def _print_step(step: str) -> None:
    typer.echo(f"{step} …", err=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantOptions(CommonOptions):
    """The options of a command about one tenant."""

    tenant: Annotated[str, typer.Option("--tenant", "-t", help="Name of the tenant.")] = "default"

    @contextmanager
    def open_tenant(self) -> "Iterator[Tenant]":
        """Open an engine for the block, and yield the tenant."""
        with self.open_engine() as engine:
            yield engine.tenant(self.tenant)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions(TenantOptions):
    """The options of a command that reads one or all collections."""

    collection: ReadCollectionOption = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions(TenantOptions):
    """The options of a command that writes into one collection."""

    collection: WriteCollectionOption = None


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Create a command from a function with dataclasses of options.

    Each field of such a dataclass becomes an option. A KosmosError is printed as one line, with `--json` also as an
    object, and the process exits with 1.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(function)
    def run(**values: Any) -> None:
        as_json = bool(values.get("as_json", False))
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        try:
            function(**values)
        except KosmosError as error:
            fail(error, as_json=as_json)

    parameters = [
        parameter
        for name, argument in inspect.signature(function).parameters.items()
        for parameter in (
            _fields(groups[name]) if name in groups else [_parameter(name, hints[name], argument.default)]
        )
    ]
    run.__signature__ = inspect.Signature(_order_options(parameters))  # type: ignore[attr-defined]  # where typer looks
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _order_options(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters with the common options last."""
    order = ("tenant", "collection", "config", "set_", "as_json")
    return sorted(parameters, key=lambda parameter: order.index(parameter.name) if parameter.name in order else -1)


def _fields(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_parameter(field.name, hints[field.name], field.default) for field in fields(group)]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)
