"""kosmos-rag delete: documents out of a collection, with every row of theirs."""

from pathlib import Path
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import (
    not_blank,
    print_json,
)
from kosmos_rag.apps.cli.options import WriteOptions, command
from kosmos_rag.core.errors import RequestError


@command
def delete(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Paths, or names as `documents` shows.")],
    *,
    common: WriteOptions,
) -> None:
    """Remove documents by source. A folder's path removes every document below it."""
    not_blank(sources, "SOURCE")
    with common.open_engine() as engine:
        scope = engine.tenant(common.tenant, collection=common.collection)
        chosen = _chosen(sources, scope.sources(), common.tenant, common.collection)
        count = scope.delete(sorted(chosen))
    if common.as_json:
        print_json({"tenant": common.tenant, "removed": count, "sources": sorted(chosen)})
    else:
        typer.echo(f"{count} documents removed")


def _chosen(sources: list[str], stored: list[str], tenant: str, collection: str | None) -> set[str]:
    """Return the stored sources that the arguments name, themselves or as a folder."""
    from kosmos_rag.core.types import DEFAULT_COLLECTION
    from kosmos_rag.ingestion.sources.files import name_of

    chosen: set[str] = set()
    for source in sources:
        names = {source, name_of(Path(source))}
        folders = tuple(name.rstrip("/") + "/" for name in names)
        matching = {name for name in stored if name in names or name.startswith(folders)}
        if not matching:
            raise RequestError(
                f"collection {collection or DEFAULT_COLLECTION!r} of tenant {tenant!r} has no document {source!r}, "
                "so nothing was removed; `kosmos-rag documents` lists what there is"
            )
        chosen |= matching
    return chosen
