"""kosmos-rag enqueue: give sources to the workers."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos_rag.apps.cli.common import (
    EveryOption,
    console,
    not_blank,
    print_json,
)
from kosmos_rag.apps.cli.options import WriteOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping


@command
def enqueue(
    paths: Annotated[list[str] | None, typer.Argument(metavar="[PATH...]", help="Files and folders.")] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--source", metavar="FILE", help="YAML file that describes a source; may be repeated."),
    ] = None,
    every: EveryOption = None,
    keep_missing: Annotated[
        bool, typer.Option("--keep-missing", help="Keep documents that a source does not hold any more.")
    ] = False,
    priority: Annotated[
        int, typer.Option("--priority", min=-1000, max=1000, help="Higher is sooner, among the tenant's own jobs.")
    ] = 0,
    *,
    common: WriteOptions,
) -> None:
    """Have workers ingest files, folders and other sources. Prints the jobs; `kosmos-rag jobs` follows them."""
    items: list[str | Mapping[str, Any]] = [*not_blank(paths, "PATH"), *map(_spec, source or ())]
    if not items:
        raise RequestError("nothing to enqueue; name a PATH, or a source with --source FILE")
    with common.open_engine() as engine:
        jobs = engine.tenant(common.tenant, collection=common.collection).jobs
        ids = [
            jobs.enqueue(
                item,
                prune=not keep_missing,
                every=timedelta(seconds=every) if every else None,
                priority=priority,
            )
            for item in items
        ]
    if common.as_json:
        print_json({"jobs": ids})
    else:
        for number, item in zip(ids, items, strict=True):
            console().print(f"job {number}: {item if isinstance(item, str) else item['kind']}")


def _spec(file: Path) -> "Mapping[str, Any]":
    import yaml

    try:
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"--source {file} cannot be read: {reason}; give a YAML file") from error
    if not isinstance(spec, dict):
        raise RequestError(f"--source {file} holds no mapping; begin it with kind: folder, or another kind")
    return spec
