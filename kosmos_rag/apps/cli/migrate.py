"""kosmos-rag migrate: migrate the database, and distribute its tables on Citus."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import print_json, to_plain
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.errors import RequestError


@command
def migrate(
    revision: Annotated[str, typer.Argument(help="`head`, `base` or a revision to migrate to.")] = "head",
    distribute: Annotated[
        bool, typer.Option("--distribute", help="Then distribute the tables over the nodes of Citus by tenant.")
    ] = False,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            min=1,
            max=64_000,
            help="With --distribute, the first time: shards of each table, and so the most nodes; else 32.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --distribute: print the statements without running them.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Also downgrade, which drops what newer revisions created.")
    ] = False,
    *,
    common: CommonOptions,
) -> None:
    """Prepare the database (roles, extension, schema) and migrate it to a revision.

    A downgrade drops the tables of newer revisions with their data.
    """
    if distribute and revision != "head":
        raise RequestError(f"--distribute needs the newest revision, not {revision}; omit the revision")
    if (dry_run or shards is not None) and not distribute:
        raise RequestError("--dry-run and --shards need --distribute; add it")
    settings = common.load_settings()
    from kosmos_rag.engine.administration import distribute_tables, set_up

    migration = None if dry_run else set_up(settings.database, revision, may_drop=yes)
    statements = distribute_tables(settings.database, shards=shards, dry_run=dry_run) if distribute else []
    if common.as_json:
        result = {} if migration is None else to_plain(migration)
        print_json(result | ({"statements": statements} if distribute else {}))
        return
    if migration is not None and migration.before == migration.after:
        changed = f"; functions changed: {', '.join(migration.functions)}" if migration.functions else ""
        typer.echo(f"already at revision {migration.after}{changed}")
    elif migration is not None:
        typer.echo(
            f"migrated from {migration.before or 'an empty database'} to {migration.after or 'an empty database'}"
        )
    if distribute:
        _print_statements(statements, dry_run=dry_run)


def _print_statements(statements: list[str], *, dry_run: bool) -> None:
    if dry_run:
        typer.echo("\n".join(f"{statement};" for statement in statements) or "-- everything is distributed")
    else:
        typer.echo(f"{len(statements)} statements run" if statements else "everything is distributed already")
