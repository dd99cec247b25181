"""kosmos-rag documents: list and export documents."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from kosmos_rag.apps.cli.common import (
    PrincipalOption,
    console,
    encodes_all,
    open_reader,
    print_json,
    table,
)
from kosmos_rag.apps.cli.options import ReadOptions, command
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.text.counts import count

if TYPE_CHECKING:
    from kosmos_rag.engine.tenant import Tenant

_PDF = "application/pdf"
ExportOption = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE",
        help="Write documents with texts and chunks as JSON Lines into a new file; - is stdout.",
    ),
]


@command
def documents(principal: PrincipalOption = None, export: ExportOption = None, *, common: ReadOptions) -> None:
    """List the documents of a tenant, or of one of its collections."""
    with common.open_engine() as engine:
        reader = open_reader(engine, common.tenant, common.collection, principal)
        if export is not None:
            _export(_records(reader), export)
            return
        infos = reader.documents()
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
    without_pages = sum(document.media_type == _PDF and not document.has_original for document in infos)
    if without_pages:
        out.print(
            f"{count(without_pages, 'PDF file')} without stored pages: the console shows the text; "
            "set ingestion.keep_originals: true and ingest again to see pages"
        )


def _records(reader: "Tenant") -> Iterator[dict[str, Any]]:
    """Yield each document with its text and the spans of its chunks."""
    for document in reader.documents():
        text, outline = reader.document_texts([document.id]).get(document.id), reader.outline(document.id)
        if text is not None and outline is not None:  # else it was removed meanwhile
            yield {**document.to_dict(), "acl": outline.acl, "text": text, "chunk_spans": outline.chunks}


def _export(documents: Iterator[dict[str, Any]], file: Path) -> None:
    """Write a line for each document. A file is complete or absent."""
    if str(file) == "-":
        _write_lines(documents, sys.stdout)
        return
    if file.exists():
        raise RequestError(f"{file} exists, and an export overwrites nothing; name another file")
    partial = file.with_name(f"{file.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as out:
            total = _write_lines(documents, out)
        partial.rename(file)
    except OSError as error:
        raise RequestError(f"{file} cannot be written: {error.strerror}; name a folder with room for it") from error
    finally:
        partial.unlink(missing_ok=True)
    typer.echo(f"{count(total, 'document')} in {file}")


def _write_lines(documents: Iterator[dict[str, Any]], out: TextIO) -> int:
    """Write the documents as JSON Lines, and return their number."""
    total = 0
    for document in documents:
        out.write(json.dumps(document, ensure_ascii=not encodes_all(out)) + "\n")
        total += 1
    return total
