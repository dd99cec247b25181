"""kosmos-rag documents: what a tenant has."""

from dataclasses import asdict

from kosmos_rag.cli.common import (
    ConfigOption,
    JsonOption,
    SetOption,
    TenantOption,
    console,
    opened,
    print_json,
    reported,
    shown,
)


def documents(
    tenant: TenantOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the documents of a tenant."""
    with reported(as_json=as_json), opened(config, set_) as engine:
        listed = engine.tenant(tenant).documents()
    if as_json:
        print_json({"tenant": tenant, "documents": [asdict(document) for document in listed]})
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("source", "title", "type", "version", "chunks", "bytes", "updated", box=None)
    for document in listed:
        cells = (
            shown(document.source),
            document.title,
            document.media_type,
            str(document.version),
            str(document.chunks),
            f"{document.bytes:,}",
            f"{document.updated_at:%Y-%m-%d %H:%M}",
        )
        table.add_row(*(Text(cell) for cell in cells))
    out = console()
    if listed:
        out.print(table)
    out.print(f"{len(listed)} documents, {sum(document.chunks for document in listed)} chunks in tenant {tenant}")
