"""kosmos-rag documents: list documents."""

from kosmos_rag.apps.cli.common import (
    PrincipalOption,
    console,
    open_reader,
    print_json,
    table,
)
from kosmos_rag.apps.cli.options import ReadOptions, command
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.text.counts import count


@command
def documents(principal: PrincipalOption = None, *, common: ReadOptions) -> None:
    """List the documents of a tenant, or of one of its collections."""
    with common.open_engine() as engine:
        infos = open_reader(engine, common.tenant, common.collection, principal).documents()
    if common.as_json:
        print_json({"tenant": common.tenant, "documents": [document.to_dict() for document in infos]})
        return
    columns = ("source", "collection", "title", "type", "language", "version", "chunks", "bytes", "updated", "notes")
    rows = table(*columns, right={"version", "chunks", "bytes"})
    for document in infos:
        rows.add_row(
            one_line(document.source),
            document.collection,
            document.title,
            document.media_type,
            document.language,
            str(document.version),
            str(document.chunks),
            f"{document.bytes:,}",
            f"{document.updated_at:%Y-%m-%d %H:%M}",
            ", ".join(note.code for note in document.notes),
        )
    out = console()
    if infos:
        out.print(rows)
    chunks = sum(document.chunks for document in infos)
    out.print(f"{count(len(infos), 'document')}, {count(chunks, 'chunk')} in tenant {common.tenant}")
