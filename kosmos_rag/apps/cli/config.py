"""kosmos-rag config: the settings in force, and where each came from."""

import typer

from kosmos_rag.apps.cli.common import ConfigOption, JsonOption, SetOption, overrides, print_json, reported

app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command("show")
def show(config: ConfigOption = None, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """Print every setting with its value and where it came from: default, file, environment or argument."""
    from kosmos_rag.core.config import Settings, flatten

    with reported(as_json=as_json):
        settings, origins = Settings.load_with_origins(config, overrides=overrides(set_))
    values = flatten(settings)
    if as_json:
        print_json({key: {"value": value, "origin": str(origins[key])} for key, value in values.items()})
        return
    import json

    width = max(map(len, values))
    for key, value in values.items():
        typer.echo(f"{key:<{width}}  {json.dumps(value, ensure_ascii=False)}  ({origins[key]})")
