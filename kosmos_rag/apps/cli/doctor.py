"""kosmos-rag doctor: check the installation."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import print_json
from kosmos_rag.apps.cli.options import CommonOptions, command


@command
def doctor(
    *,
    common: CommonOptions,
    near_duplicates: Annotated[
        str | None,
        typer.Option("--near-duplicates", metavar="TENANT", help="List near-duplicates among its documents."),
    ] = None,
) -> None:
    """Check database, extension, roles, revision, models, isolation of parsers, disk.

    Exits with 1 for a problem.
    """
    from kosmos_rag.engine.diagnosis import diagnose
    from kosmos_rag.wings import load_wing_jobs

    settings = common.load_settings()
    checks = diagnose(settings, near_duplicates, load_wing_jobs())
    healthy = all(check.ok for check in checks)
    if common.as_json:
        versions = [{"check": check.name, "ok": check.ok, "detail": check.detail} for check in checks]
        print_json({"ok": healthy, "checks": versions})
    else:
        for check in checks:
            typer.echo(f"{'ok     ' if check.ok else 'PROBLEM'}  {check.name}: {check.detail}")
    if not healthy:
        raise typer.Exit(1)
