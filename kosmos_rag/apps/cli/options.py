"""The options that commands share, and the decorator that adds them and the error frame to a command."""

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
    str | None, typer.Option("--collection", "-C", metavar="NAME", help="Only this collection; else all of them.")
]
WriteCollectionOption = Annotated[
    str | None, typer.Option("--collection", "-C", metavar="NAME", help="The collection; else the one named default.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommonOptions:
    """The options of every command that loads settings."""

    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Settings file; else KOSMOS_CONFIG, else ./rag-config.yaml."),
    ] = None
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be repeated.")
    ] = None
    as_json: JsonOption = False

    def load_settings(self, *more: str) -> "Settings":
        """Load the settings, with `more` overrides of KEY=VALUE last, and set up logging by them."""
        from kosmos_rag.core.config import Settings

        settings = Settings.load(self.config, overrides=overrides([*(self.set_ or ()), *more]))
        set_up_logging(settings.observability)
        return settings

    @contextmanager
    def open_engine(self) -> "Iterator[Engine]":
        """Open the engine that the settings describe, and close it at the end of the block."""
        settings = self.load_settings()
        from kosmos_rag.engine.engine import Engine

        with Engine.open(settings) as engine:
            yield engine


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantOptions(CommonOptions):
    """The options of a command about one tenant."""

    tenant: Annotated[str, typer.Option("--tenant", "-t", help="Name of the tenant.")] = "default"

    @contextmanager
    def open_tenant(self) -> "Iterator[Tenant]":
        """Open the engine for the length of the block, and yield the tenant."""
        with self.open_engine() as engine:
            yield engine.tenant(self.tenant)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions(TenantOptions):
    """The options of a command that reads one collection or all of them."""

    collection: ReadCollectionOption = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions(TenantOptions):
    """The options of a command that writes into one collection."""

    collection: WriteCollectionOption = None


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function whose parameters may be dataclasses of options.

    On the command line each field of such a dataclass is an option. An error of the library is printed as one line, and
    as an object too with `--json`; the process then exits with 1.
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
        for name, own in inspect.signature(function).parameters.items()
        for parameter in (_fields(groups[name]) if name in groups else [_parameter(name, hints[name], own.default)])
    ]
    run.__signature__ = inspect.Signature(_last_common(parameters))  # type: ignore[attr-defined]  # where typer looks
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _last_common(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Put the options that all commands have last in the help."""
    order = ("tenant", "collection", "config", "set_", "as_json")
    return sorted(parameters, key=lambda parameter: order.index(parameter.name) if parameter.name in order else -1)


def _fields(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_parameter(field.name, hints[field.name], field.default) for field in fields(group)]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)
