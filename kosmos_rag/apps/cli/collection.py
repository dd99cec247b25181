"""kosmos-rag collection: the collections of a tenant, and the presets that they go by."""

from dataclasses import asdict
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import (
    ConfigOption,
    JsonOption,
    PrincipalOption,
    SetOption,
    TenantOption,
    console,
    opened,
    print_json,
    reader,
    reported,
    table,
)

app = typer.Typer(help="A tenant's collections, and the presets that they go by.")

NameArgument = Annotated[str, typer.Argument(help="Name of the collection.")]
PresetOption = Annotated[
    str, typer.Option("--preset", "-p", metavar="NAME|FILE", help="One of docs/presets.md, or a YAML file.")
]


@app.command("create")
def create(
    name: NameArgument,
    preset: PresetOption,
    tenant: TenantOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a collection go by a preset, whose settings are kept with it."""
    with reported(as_json=as_json), opened(config, set_) as engine:
        made = engine.tenant(tenant).collections.create(name, preset=preset)
    if as_json:
        print_json({"tenant": tenant, "collection": asdict(made)})
    else:
        console().print(f"the collection {name} of tenant {tenant} goes by the preset {made.preset}")


@app.command("list")
def list_(
    tenant: TenantOption = "default",
    principal: PrincipalOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the collections that have a preset or documents, with the chunks that may be read."""
    with reported(as_json=as_json), opened(config, set_) as engine:
        listed = reader(engine, tenant, None, principal).collections.infos()
    if as_json:
        print_json({"tenant": tenant, "collections": [asdict(info) for info in listed]})
        return
    rows = table("collection", "preset", "chunks", right={"chunks"})
    for info in listed:
        rows.add_row(info.name, info.preset or "-", f"{info.chunks:,}")
    out = console()
    if listed:
        out.print(rows)
    out.print(f"{len(listed)} collections in tenant {tenant}")


@app.command("show")
def show(
    name: NameArgument,
    tenant: TenantOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the settings that a collection goes by, where they are not the tenant's."""
    with reported(as_json=as_json), opened(config, set_) as engine:
        settings = engine.tenant(tenant).collections.settings(name)
    if as_json:
        print_json({"tenant": tenant, "collection": name, "settings": settings})
    elif settings:
        import yaml

        typer.echo(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), nl=False)
    else:
        typer.echo(f"the collection {name} of tenant {tenant} goes by the settings of the tenant")


@app.command("delete")
def delete(
    name: NameArgument,
    tenant: TenantOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a collection, with its documents and its preset."""
    with reported(as_json=as_json), opened(config, set_) as engine:
        removed = engine.tenant(tenant).collections.delete(name)
    if as_json:
        print_json({"tenant": tenant, "collection": name, "removed": removed})
    else:
        console().print(f"{removed} documents removed with the collection {name} of tenant {tenant}")
