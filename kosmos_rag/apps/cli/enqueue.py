"""kosmos-rag enqueue: enqueue sources for workers."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import (
    EveryOption,
    RootOption,
    console,
    print_json,
    require_not_blank,
)
from kosmos_rag.apps.cli.options import WriteOptions, command
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.text.counts import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kosmos_rag.engine.sources import SourceCheck


@command
def enqueue(
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH...]", help="Files and folders.")] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--source", metavar="FILE", help="YAML file that describes a source; may be repeated."),
    ] = None,
    permissions: Annotated[
        list[Path] | None,
        typer.Option(
            "--permissions", metavar="FILE", help="YAML file that describes a permission feed; may be repeated."
        ),
    ] = None,
    root: RootOption = None,
    every: EveryOption = None,
    keep_missing: Annotated[
        bool, typer.Option("--keep-missing", help="Keep documents that are missing from their source.")
    ] = False,
    priority: Annotated[
        int,
        typer.Option(
            "--priority", min=-1000, max=1000, help="Jobs with a higher priority run first within the tenant."
        ),
    ] = 0,
    check: Annotated[
        bool, typer.Option("--check", help="Show what each source would read, and who could read it; enqueue nothing.")
    ] = False,
    script: Annotated[
        bool,
        typer.Option("--script", help="Print the SQL by which the database of a source records changes."),
    ] = False,
    *,
    common: WriteOptions,
) -> None:
    """Enqueue files, folders, other sources and permission feeds for workers.

    Prints the jobs, or with --check what the sources have.
    """
    items: list[str | Mapping[str, Any]] = [
        *require_not_blank(paths, "PATH"),
        *(_spec(file, "--source", "folder") for file in source or ()),
    ]
    feeds = [_spec(file, "--permissions", "json_lines") for file in permissions or ()]
    if not items and not feeds:
        raise RequestError("nothing to enqueue; name a PATH, a source with --source FILE, or --permissions FILE")
    if script:
        _print_scripts(items, common)
        return
    if check:
        _check(items, common)
        return
    options: dict[str, Any] = {"every": timedelta(seconds=every) if every else None, "priority": priority}
    with common.open_engine() as engine:
        jobs = engine.tenant(common.tenant, collection=common.collection).jobs
        ids = [
            *(jobs.enqueue(item, prune=not keep_missing, root=root, **options) for item in items),
            *(jobs.enqueue_permissions(feed, **options) for feed in feeds),
        ]
    if common.as_json:
        print_json({"jobs": ids})
    else:
        names = [item if isinstance(item, str) else item["kind"] for item in items]
        for number, name in zip(ids, [*names, *(f"permissions {feed['name']}" for feed in feeds)], strict=True):
            console().print(f"job {number}: {name}")


def _print_scripts(items: "Sequence[str | Mapping[str, Any]]", common: WriteOptions) -> None:
    """Print the script of each source. Raises RequestError for a source without one."""
    from kosmos_rag.engine.sources import create_change_script

    settings = common.load_settings()
    for item in items:
        spec = {"kind": "folder"} if isinstance(item, str) else item
        typer.echo(create_change_script(spec, settings.ingestion))


def _check(items: "Sequence[str | Mapping[str, Any]]", common: WriteOptions) -> None:
    """Print the check of each source; end with 1 if one cannot be read completely."""
    from kosmos_rag.engine.sources import check_source

    settings = common.load_settings()
    specs = [{"kind": "folder", "path": item} if isinstance(item, str) else item for item in items]
    checks = [check_source(spec, settings.ingestion) for spec in specs]
    if common.as_json:
        print_json({"sources": [{**asdict(result), "ok": result.ok} for result in checks]})
    else:
        for result in checks:
            _print_check(result)
    if not all(result.ok for result in checks):
        raise typer.Exit(1)


def _print_check(result: "SourceCheck") -> None:
    out = console()
    out.print(f"{result.kind}: {count(result.documents, 'document')}", style="bold")
    for name in result.examples:
        out.print(f"  {one_line(name)}")
    if result.documents > len(result.examples):
        out.print(f"  … {result.documents - len(result.examples)} more")
    for principal, documents in result.readers.items():
        out.print(f"  {one_line(principal)} could read {documents}")
    if result.unreadable:
        names = ", ".join(map(one_line, result.unreadable_examples))
        more = ", …" if result.unreadable > len(result.unreadable_examples) else ""
        out.print(
            f"  nobody could read {result.unreadable}, for the feed names no reader: {names}{more}", style="yellow"
        )
    for failure in result.failures:
        out.print(f"  {failure.code}: {one_line(failure.message)}", style="red")
    if not result.complete:
        out.print("  the listing is incomplete: a pass would remove nothing", style="yellow")


def _spec(file: Path, option: str, kind: str) -> "Mapping[str, Any]":
    """Read a YAML file.

    Raises RequestError that names the option and a kind.
    """
    import yaml

    try:
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"{option} {file} cannot be read: {reason}; give a YAML file") from error
    if not isinstance(spec, dict):
        raise RequestError(f"{option} {file} is not a mapping; start it with kind: {kind}, or another kind")
    return spec
