"""kosmos-rag config: the effective settings and their origins."""

import typer

from kosmos_rag.apps.cli.common import overrides, print_json
from kosmos_rag.apps.cli.options import CommonOptions, command

app = typer.Typer(help="Show the configuration.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command("show")
@command
def show(*, common: CommonOptions) -> None:
    """Print every setting with its value and origin.

    Origins are default, file, environment and argument.
    """
    from kosmos_rag.core.config import Settings, flatten

    settings, origins = Settings.load_with_origins(common.config, overrides=overrides(common.set_))
    values = flatten(settings)
    if common.as_json:
        print_json({key: {"value": value, "origin": str(origins[key])} for key, value in values.items()})
        return
    import json

    width = max(map(len, values))
    for key, value in values.items():
        typer.echo(f"{key:<{width}}  {json.dumps(value, ensure_ascii=False)}  ({origins[key]})")
