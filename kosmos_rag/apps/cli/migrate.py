"""kosmos-rag migrate: the database to a revision, and its tables over the nodes of Citus."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import print_json
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.errors import RequestError


@command
def migrate(
    revision: Annotated[str, typer.Argument(help="`head`, `base`, or a revision to go up or down to.")] = "head",
    distribute: Annotated[
        bool, typer.Option("--distribute", help="Then spread the tables over the nodes of Citus, by tenant.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --distribute: print its statements, and run nothing.")
    ] = False,
    *,
    common: CommonOptions,
) -> None:
    """Prepare the database (roles, extension, schema) and bring it to a revision.

    Going down drops what newer revisions made, with its data.
    """
    if distribute and revision != "head":
        raise RequestError(f"--distribute is for the newest revision alone, not {revision}; leave the revision out")
    if dry_run and not distribute:
        raise RequestError("--dry-run is for --distribute alone; give both")
    settings = common.load_settings()
    from kosmos_rag.storage.setup import distribute_tables, set_up

    done = None if dry_run else set_up(settings.database, revision)
    statements = distribute_tables(settings.database, dry_run=dry_run) if distribute else []
    if common.as_json:
        revisions = {} if done is None else {"before": done.before, "after": done.after}
        print_json(revisions | ({"statements": statements} if distribute else {}))
        return
    if done is not None and done.before == done.after:
        typer.echo(f"already at revision {done.after}")
    elif done is not None:
        typer.echo(f"migrated from {done.before or 'an empty database'} to {done.after or 'an empty database'}")
    if distribute:
        _print_statements(statements, dry_run=dry_run)


def _print_statements(statements: list[str], *, dry_run: bool) -> None:
    if dry_run:
        typer.echo("\n".join(f"{statement};" for statement in statements) or "-- everything is distributed")
    else:
        typer.echo(f"{len(statements)} statements run" if statements else "everything is distributed already")
