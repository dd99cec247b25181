"""kosmos-rag collection: collections of a tenant and their presets."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import (
    PrincipalOption,
    console,
    open_reader,
    print_json,
    table,
)
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.text.counts import count

app = typer.Typer(help="Manage the collections of a tenant and their presets.")

NameArgument = Annotated[str, typer.Argument(help="Name of the collection.")]
PresetOption = Annotated[
    str, typer.Option("--preset", "-p", metavar="NAME|FILE", help="Name of a preset of the library, or a YAML file.")
]


@app.command("create")
@command
def create(name: NameArgument, preset: PresetOption, *, common: TenantOptions) -> None:
    """Create a collection with a preset; the settings are stored with it."""
    with common.open_tenant() as tenant:
        info = tenant.collections.create(name, preset=preset)
    if common.as_json:
        print_json({"tenant": common.tenant, "collection": info.to_dict()})
    else:
        console().print(f"the collection {name} of tenant {common.tenant} has the preset {info.preset}")


@app.command("set-preset")
@command
def set_preset(name: NameArgument, preset: PresetOption, *, common: TenantOptions) -> None:
    """Change the preset of a collection.

    It applies to documents at their next ingestion.
    """
    with common.open_tenant() as tenant:
        info = tenant.collections.set_preset(name, preset=preset)
    if common.as_json:
        print_json({"tenant": common.tenant, "collection": info.to_dict()})
    else:
        console().print(
            f"the collection {name} of tenant {common.tenant} has the preset {info.preset}; "
            "it applies to documents at their next ingestion"
        )


@app.command("list")
@command
def list_(principal: PrincipalOption = None, *, common: TenantOptions) -> None:
    """List the collections with a preset or documents, and their readable chunks."""
    with common.open_engine() as engine:
        infos = open_reader(engine, common.tenant, None, principal).collections.infos()
    if common.as_json:
        print_json({"tenant": common.tenant, "collections": [info.to_dict() for info in infos]})
        return
    rows = table("collection", "preset", "chunks", right={"chunks"})
    for info in infos:
        rows.add_row(info.name, info.preset or "-", f"{info.chunks:,}")
    out = console()
    if infos:
        out.print(rows)
    out.print(f"{len(infos)} collections in tenant {common.tenant}")


@app.command("show")
@command
def show(name: NameArgument, *, common: TenantOptions) -> None:
    """Show the settings that a collection has from its preset."""
    with common.open_tenant() as tenant:
        settings = tenant.collections.settings(name)
    if common.as_json:
        print_json({"tenant": common.tenant, "collection": name, "settings": settings})
    elif settings:
        import yaml

        typer.echo(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), nl=False)
    else:
        typer.echo(f"the collection {name} of tenant {common.tenant} has no preset")


@app.command("delete")
@command
def delete(name: NameArgument, *, common: TenantOptions) -> None:
    """Delete a collection with its jobs, documents and preset."""
    with common.open_tenant() as tenant:
        removed = tenant.collections.delete(name)
    if common.as_json:
        print_json({"tenant": common.tenant, "collection": name, "removed": removed})
    else:
        console().print(f"{count(removed, 'document')} removed with the collection {name} of tenant {common.tenant}")
