"""kosmos-rag migrate: the database to a revision."""

from typing import Annotated

import typer

from kosmos_rag.cli.common import ConfigOption, JsonOption, SetOption, load_settings, print_json, reported


def migrate(
    revision: Annotated[str, typer.Argument(help="`head`, `base`, or a revision to go up or down to.")] = "head",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prepare the database (roles, extension, schema) and bring it to a revision.

    Going down drops what newer revisions made, with its data.
    """
    with reported(as_json=as_json):
        settings = load_settings(config, set_)
        from kosmos_rag.storage.setup import set_up

        done = set_up(settings.database, revision)
    if as_json:
        print_json({"before": done.before, "after": done.after})
    elif done.before == done.after:
        typer.echo(f"already at revision {done.after}")
    else:
        typer.echo(f"migrated from {done.before or 'an empty database'} to {done.after or 'an empty database'}")
