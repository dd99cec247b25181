"""kosmos-rag documents: what a tenant has."""

from dataclasses import asdict

from kosmos_rag.apps.cli.common import (
    ConfigOption,
    JsonOption,
    PrincipalOption,
    ReadCollectionOption,
    SetOption,
    TenantOption,
    console,
    opened,
    print_json,
    reader,
    reported,
    shown,
    table,
)


def documents(
    tenant: TenantOption = "default",
    collection: ReadCollectionOption = None,
    principal: PrincipalOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the documents of a tenant, or of one of its collections."""
    with reported(as_json=as_json), opened(config, set_) as engine:
        listed = reader(engine, tenant, collection, principal).documents()
    if as_json:
        print_json({"tenant": tenant, "documents": [asdict(document) for document in listed]})
        return
    columns = ("source", "collection", "title", "type", "language", "version", "chunks", "bytes", "updated")
    rows = table(*columns, right={"version", "chunks", "bytes"})
    for document in listed:
        rows.add_row(
            shown(document.source),
            document.collection,
            document.title,
            document.media_type,
            document.language,
            str(document.version),
            str(document.chunks),
            f"{document.bytes:,}",
            f"{document.updated_at:%Y-%m-%d %H:%M}",
        )
    out = console()
    if listed:
        out.print(rows)
    out.print(f"{len(listed)} documents, {sum(document.chunks for document in listed)} chunks in tenant {tenant}")
