"""Shared by the commands: options, readers, tables, progress, errors."""

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO, TypeVar

import typer

from kosmos_rag.core.errors import IngestionError, KosmosError, RequestError
from kosmos_rag.core.names import spell_sources

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.engine.tenant import Tenant

_NO_WRAP_WIDTH = 10_000
Row = TypeVar("Row")

QuestionArgument = Annotated[str, typer.Argument(help="The question, in plain words.")]
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
        "--principal", metavar="NAME", help="Read with this principal only; may be repeated; default: everyone."
    ),
]
RootOption = Annotated[
    str | None,
    typer.Option(
        "--root",
        metavar="NAME",
        help="Root that the names of files begin with, . for none; default: the name of their folder.",
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of rows.")]


def overrides(pairs: list[str] | None) -> dict[str, Any]:
    """Parse `key=value` pairs; values are YAML. Raises RequestError for a malformed pair."""
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


def require_not_blank(values: list[str] | None, label: str, *, remedy: str = "name a file or folder") -> list[str]:
    """Return the values.

    Args:
        values: values of an option or argument.
        label: its name, for the error.
        remedy: what to do, for the error.

    Raises:
        RequestError: a value is blank: an unset shell variable must not select everything.
    """
    if any(not value.strip() for value in values or ()):
        raise RequestError(f"{label} is empty; {remedy}")
    return values or []


def open_reader(engine: "Engine", tenant: str, collection: str | None, principals: list[str] | None) -> "Tenant":
    """Open a tenant with the principals of a reader.

    Args:
        collection: the only collection to read; None for all.
        principals: principals of the reader; None for `everyone` alone.

    Raises:
        RequestError: a name is malformed.
    """
    from kosmos_rag.core.types import EVERYONE

    names = require_not_blank(principals, "--principal", remedy="name a principal, --principal department:sales")
    # A command may follow one that wrote.
    return engine.tenant(tenant, principals=names or (EVERYONE,), collection=collection, read_your_writes=True)


def fail(error: KosmosError, *, as_json: bool) -> NoReturn:
    """Print an error on standard error and exit with 1.

    With `--json`, also print an object on standard output.
    """
    if as_json:
        body = {"type": type(error).__name__, "message": str(error)}
        if isinstance(error, IngestionError):
            body["code"] = error.code
        print_json({"error": body})
    message = " ".join(str(error).split())
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object. Characters that the terminal cannot show are escaped."""
    typer.echo(json.dumps(value, ensure_ascii=not encodes_all(sys.stdout), default=str))


def encodes_all(out: TextIO) -> bool:
    """Return whether an output takes every character."""
    return (out.encoding or "").lower().replace("-", "") == "utf8"


def to_plain(record: Any) -> dict[str, Any]:
    """Return the fields of a record for JSON; times in ISO 8601."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(record).items()}


def cut(rows: Sequence[Row], limit: int) -> tuple[Sequence[Row], bool]:
    """Return at most `limit` rows, and whether there are more.

    The caller asks for one row more than it shows.
    """
    return rows[:limit], len(rows) > limit


def print_truncated(limit: int, remedy: str = "a larger --limit") -> None:
    """Print that a list has more rows than were asked for."""
    console().print(f"only the first {limit} rows; {remedy} shows more", style="dim")


def table(*columns: str, right: Collection[str] = ()) -> "Table":
    """Create a table without borders; `right` names the columns to align right."""
    from rich.table import Table

    new_table = Table(box=None, pad_edge=False)
    for name in columns:
        new_table.add_column(name, overflow="fold", justify="right" if name in right else "left")
    return new_table


@contextmanager
def progress(*, visible: bool) -> "Iterator[Callable[[int, int, str], None] | None]":
    """Show a progress bar on standard error.

    Yields a callback `(done, total, label)`.
    """
    if not visible:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    out = Console(stderr=True)
    # Only on a terminal: elsewhere an error must be one line.
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("starting", total=None)

        def advance(completed: int, total: int, label: str) -> None:
            bar.update(task, completed=completed, total=total or None, description=label)

        yield advance


def warm_up(engine: "Engine") -> None:
    """Load the models, and show that on a terminal."""
    from rich.console import Console

    with Console(stderr=True).status("loading the models"):
        engine.warm_up()


def console() -> "Console":
    """Create the console.

    It has colours on a terminal only, and no markup in texts of documents.
    """
    from kosmos_rag.apps.cli.output import PlainConsole

    # Output to a file or a pipe is not wrapped.
    return PlainConsole(width=None if sys.stdout.isatty() else _NO_WRAP_WIDTH)


def source_names(source: str) -> list[str]:
    """Return the possible names of a source.

    They are the source, and for a path that exists the default name of its documents, composed and decomposed.
    """
    from kosmos_rag.engine.source_names import default_name

    path = Path(source)
    return spell_sources([source, default_name(path)] if path.exists() else [source])


def match_sources(sources: list[str], stored: list[str], tenant: str, collection: str | None) -> set[str]:
    """Return the stored sources that the arguments name, directly or by folder."""
    from kosmos_rag.core.types import DEFAULT_COLLECTION

    matched: set[str] = set()
    for source in sources:
        names = source_names(source)
        folders = tuple(name.rstrip("/") + "/" for name in names)
        matching = {name for name in stored if name in names or name.startswith(folders)}
        if not matching:
            raise RequestError(
                f"collection {collection or DEFAULT_COLLECTION!r} of tenant {tenant!r} has no document {source!r}, "
                "so nothing was changed; `kosmos-rag documents` lists the documents"
            )
        matched |= matching
    return matched


def parse_pair(pair: str) -> tuple[str, Any]:
    """Return key and value of KEY=VALUE.

    The value is JSON, else text. Raises RequestError.
    """
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise RequestError(f"--metadata {pair!r} is not KEY=VALUE; write --metadata year=2026")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value
