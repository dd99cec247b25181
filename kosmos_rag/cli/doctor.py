"""kosmos-rag doctor: what is wrong here, and what to do."""

import typer

from kosmos_rag.cli.common import ConfigOption, JsonOption, SetOption, load_settings, print_json, reported


def doctor(config: ConfigOption = None, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """Check database, extension, roles, revision, models and disk. Exits with 1 where something is wrong."""
    with reported(as_json=as_json):
        settings = load_settings(config, set_)
    from kosmos_rag.diagnosis import diagnose

    checks = diagnose(settings)
    healthy = all(check.ok for check in checks)
    if as_json:
        found = [{"check": check.name, "ok": check.ok, "detail": check.detail} for check in checks]
        print_json({"ok": healthy, "checks": found})
    else:
        for check in checks:
            typer.echo(f"{'ok     ' if check.ok else 'PROBLEM'}  {check.name}: {check.detail}")
    if not healthy:
        raise typer.Exit(1)
