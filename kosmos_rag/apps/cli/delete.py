"""kosmos-rag delete: delete documents of a collection."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import (
    print_json,
    require_not_blank,
    source_names,
)
from kosmos_rag.apps.cli.options import WriteOptions, command
from kosmos_rag.core.errors import RequestError


@command
def delete(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Paths, or source names from `documents`.")],
    *,
    common: WriteOptions,
) -> None:
    """Delete documents by source. A folder selects all documents below it."""
    require_not_blank(sources, "SOURCE")
    with common.open_engine() as engine:
        tenant = engine.tenant(common.tenant, collection=common.collection)
        matched = _match_sources(sources, tenant.sources(), common.tenant, common.collection)
        count = tenant.delete(sorted(matched))
    if common.as_json:
        print_json({"tenant": common.tenant, "removed": count, "sources": sorted(matched)})
    else:
        typer.echo(f"{count} documents removed")


def _match_sources(sources: list[str], stored: list[str], tenant: str, collection: str | None) -> set[str]:
    """Return the stored sources that the arguments name, directly or by folder."""
    from kosmos_rag.core.types import DEFAULT_COLLECTION

    matched: set[str] = set()
    for source in sources:
        names = source_names(source)
        folders = tuple(name.rstrip("/") + "/" for name in names)
        matching = {name for name in stored if name in names or name.startswith(folders)}
        if not matching:
            raise RequestError(
                f"collection {collection or DEFAULT_COLLECTION!r} of tenant {tenant!r} has no document {source!r}, "
                "so nothing was removed; `kosmos-rag documents` lists the documents"
            )
        matched |= matching
    return matched
