"""kosmos-rag collection: the collections of a tenant, and the presets that they go by."""

from dataclasses import asdict
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import (
    PrincipalOption,
    console,
    print_json,
    reader,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command

app = typer.Typer(help="A tenant's collections, and the presets that they go by.")

NameArgument = Annotated[str, typer.Argument(help="Name of the collection.")]
PresetOption = Annotated[
    str, typer.Option("--preset", "-p", metavar="NAME|FILE", help="One of docs/presets.md, or a YAML file.")
]


@app.command("create")
@command
def create(name: NameArgument, preset: PresetOption, *, common: TenantOptions) -> None:
    """Make a collection go by a preset, whose settings are kept with it."""
    with common.open_tenant() as owner:
        made = owner.collections.create(name, preset=preset)
    if common.as_json:
        print_json({"tenant": common.tenant, "collection": asdict(made)})
    else:
        console().print(f"the collection {name} of tenant {common.tenant} goes by the preset {made.preset}")


@app.command("set-preset")
@command
def set_preset(name: NameArgument, preset: PresetOption, *, common: TenantOptions) -> None:
    """Change the preset of a collection; documents take it with their next ingestion."""
    with common.open_tenant() as owner:
        changed = owner.collections.set_preset(name, preset=preset)
    if common.as_json:
        print_json({"tenant": common.tenant, "collection": asdict(changed)})
    else:
        console().print(
            f"the collection {name} of tenant {common.tenant} has the preset {changed.preset}; "
            "its documents take it with their next ingestion"
        )


@app.command("list")
@command
def list_(principal: PrincipalOption = None, *, common: TenantOptions) -> None:
    """List the collections that have a preset or documents, with the chunks that may be read."""
    with common.open_engine() as engine:
        listed = reader(engine, common.tenant, None, principal).collections.infos()
    if common.as_json:
        print_json({"tenant": common.tenant, "collections": [asdict(info) for info in listed]})
        return
    rows = table("collection", "preset", "chunks", right={"chunks"})
    for info in listed:
        rows.add_row(info.name, info.preset or "-", f"{info.chunks:,}")
    out = console()
    if listed:
        out.print(rows)
    out.print(f"{len(listed)} collections in tenant {common.tenant}")


@app.command("show")
@command
def show(name: NameArgument, *, common: TenantOptions) -> None:
    """Show the settings that a collection goes by, where they are not the tenant's."""
    with common.open_tenant() as owner:
        settings = owner.collections.settings(name)
    if common.as_json:
        print_json({"tenant": common.tenant, "collection": name, "settings": settings})
    elif settings:
        import yaml

        typer.echo(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), nl=False)
    else:
        typer.echo(f"the collection {name} of tenant {common.tenant} goes by the settings of the tenant")


@app.command("delete")
@command
def delete(name: NameArgument, *, common: TenantOptions) -> None:
    """Remove a collection, with its jobs, its documents and its preset."""
    with common.open_tenant() as owner:
        removed = owner.collections.delete(name)
    if common.as_json:
        print_json({"tenant": common.tenant, "collection": name, "removed": removed})
    else:
        console().print(f"{removed} documents removed with the collection {name} of tenant {common.tenant}")
