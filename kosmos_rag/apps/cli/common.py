"""What the commands share: their options, how settings are loaded, how results and errors are printed."""

import json
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import IngestionError, KosmosError, RequestError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.engine.tenant import Tenant

_WIDE = 10_000

EveryOption = Annotated[
    float | None,
    typer.Option(
        "--every",
        metavar="SECONDS",
        min=1,
        max=366 * 86_400,
        help="Repeat the job at this interval.",
    ),
]
PrincipalOption = Annotated[
    list[str] | None,
    typer.Option(
        "--principal", metavar="NAME", help="Read as one who holds this, and no other; may be repeated; else everyone."
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many.")]


def overrides(pairs: list[str] | None) -> dict[str, Any]:
    """Turn `key=value` pairs into overrides; a value is read as YAML. Raises RequestError on another form."""
    import yaml

    result: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise RequestError(f"--set {pair!r} is not KEY=VALUE; write --set rag.retrieval.top_k=5")
        try:
            result[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise RequestError(f"--set {key}: the value {value!r} is not YAML; quote it") from error
    return result


def not_blank(values: list[str] | None, what: str, *, remedy: str = "name a file or folder") -> list[str]:
    """Return the values. Raises RequestError on a blank one: an unset shell variable must not mean everything."""
    if any(not value.strip() for value in values or ()):
        raise RequestError(f"{what} is empty; {remedy}")
    return values or []


def reader(engine: "Engine", tenant: str, collection: str | None, principals: list[str] | None) -> "Tenant":
    """Return what a reader sees of a tenant. Raises RequestError on a malformed name."""
    from kosmos_rag.core.types import EVERYONE

    held = not_blank(principals, "--principal", remedy="name a principal, --principal department:sales")
    return engine.tenant(tenant, principals=held or (EVERYONE,), collection=collection)


def fail(error: KosmosError, *, as_json: bool) -> NoReturn:
    """Print one line on standard error (and an object on standard output, where JSON was asked for), then exit."""
    if as_json:
        body = {"type": type(error).__name__, "message": str(error)}
        if isinstance(error, IngestionError):
            body["code"] = error.code
        print_json({"error": body})
    message = " ".join(str(error).split())
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)


def print_json(value: dict[str, Any]) -> None:
    """Print one object. Text that the terminal cannot show is escaped, not refused."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    typer.echo(json.dumps(value, ensure_ascii=ascii_only, default=str))


def plain(record: Any) -> dict[str, Any]:
    """Return the fields of a record for JSON, with times as ISO 8601."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(record).items()}


def table(*columns: str, right: Collection[str] = ()) -> "Table":
    """Return a table without borders, whose cells fold; `right` names the columns of numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for name in columns:
        made.add_column(name, overflow="fold", justify="right" if name in right else "left")
    return made


@contextmanager
def progress(*, shown: bool) -> "Iterator[Callable[[int, int, str], None] | None]":
    """Show a bar on standard error, for a function that is told what is done, of how many, and what that is."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    out = Console(stderr=True)
    # Not into a file or a pipe: an error is one line there.
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("looking", total=None)

        def advance(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=what)

        yield advance


def console() -> "Console":
    """Return a console for people: colours only where it is a terminal, nothing read into document text."""
    from kosmos_rag.apps.cli.output import PlainConsole

    # What goes into a file or a pipe is cut and folded for no one.
    return PlainConsole(width=None if sys.stdout.isatty() else _WIDE)


def shown(source: str) -> str:
    """Return a source on one line, relative where it lies below the current folder."""
    with suppress(ValueError):
        source = str(Path(source).relative_to(Path.cwd()))
    return one_line(source)
