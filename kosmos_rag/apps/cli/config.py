"""kosmos-rag config: the effective settings and their origins."""

from typing import Annotated, Any

import typer

from kosmos_rag.apps.cli.common import overrides, print_json
from kosmos_rag.apps.cli.options import CommonOptions, command
from kosmos_rag.core.errors import RequestError

app = typer.Typer(help="Show the configuration.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command("show")
@command
def show(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="Only this key, or the keys of this section: rag.retrieval.")
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Print every setting with its value and origin.

    Origins are default, file, environment and argument. A single key is printed with its meaning.
    """
    from kosmos_rag.core.config import Settings, flatten

    settings, origins = Settings.load_with_origins(common.config, overrides=overrides(common.set_))
    values = flatten(settings) if key is None else _select(flatten(settings), key)
    if common.as_json:
        print_json({name: {"value": value, "origin": str(origins[name])} for name, value in values.items()})
        return
    import json

    width = max(map(len, values))
    for name, value in values.items():
        typer.echo(f"{name:<{width}}  {json.dumps(value, ensure_ascii=False)}  ({origins[name]})")
    if len(values) == 1:
        typer.echo(_describe(next(iter(values))))


def _select(values: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the values of a key, or of a section.

    Raises RequestError where there is none.
    """
    key = key.strip().rstrip(".")
    selected = {name: value for name, value in values.items() if name == key or name.startswith(f"{key}.")}
    if selected:
        return selected
    from kosmos_rag.core.config import Settings
    from kosmos_rag.core.config.keys import find_renamed_key, nearest_key

    if (new := find_renamed_key(key)) is not None:
        remedy = f"it was renamed to {new}"
    elif (near := nearest_key(Settings, key)) is not None:
        remedy = f"did you mean {near}?"
    else:
        remedy = f"sections are {', '.join(Settings.model_fields)}"
    raise RequestError(f"{key!r} is not a key of the configuration: {remedy}")


def _describe(key: str) -> str:
    from kosmos_rag.core.config import Settings
    from kosmos_rag.core.config.keys import iter_keys

    return dict(iter_keys(Settings))[key].description or ""
