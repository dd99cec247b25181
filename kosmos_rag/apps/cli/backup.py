"""kosmos-rag backup and restore: all tenants' data in one file, and back."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import print_json
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.text.counts import count

_MB = 1024 * 1024


@command
def backup(
    file: Annotated[Path, typer.Argument(help="A new file for the documents of all tenants.")],
    *,
    common: CommonOptions,
) -> None:
    """Write all tenants' data as of one moment into a file.

    Service and workers continue meanwhile.
    """
    settings = common.load_settings()
    from kosmos_rag.engine.administration import back_up

    result = back_up(settings.database, file)
    if common.as_json:
        print_json({"file": str(result.file), "bytes": result.size, "revision": result.revision})
    else:
        typer.echo(f"{result.file}: {result.size / _MB:.1f} MB, revision {result.revision}")


@command
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `backup` wrote.")],
    *,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare all rows with the file, and search for some passages as their readers."),
    ] = False,
    common: CommonOptions,
) -> None:
    """Restore a backup into an empty database.

    The database is migrated, and its roles and row-level security are checked.
    """
    settings = common.load_settings()
    from kosmos_rag.engine.administration import restore
    from kosmos_rag.engine.restored_passages import check_passages

    result = restore(settings.database, file, verify=verify)
    check = check_passages(settings, result.tenant_sample) if verify else None
    if common.as_json:
        proof = {} if check is None else {"compared_rows": result.compared_rows, **asdict(check)}
        print_json({"tenants": result.tenants, "before": result.before, "after": result.after, **proof})
        return
    migrated = "" if result.before == result.after else f", migrated from {result.before}"
    typer.echo(
        f"{result.tenants} tenants restored at revision {result.after}{migrated}; row-level security is in force"
    )
    if check is not None:
        rows = count(result.compared_rows or 0, "row")
        typer.echo(
            f"{rows} as in the file; {check.documents} of {check.questions} passages found by their words, each by its "
            "readers alone"
        )
