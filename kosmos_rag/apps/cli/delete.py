"""kosmos-rag delete: delete documents of a collection."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import (
    match_sources,
    print_json,
    require_not_blank,
)
from kosmos_rag.apps.cli.options import WriteOptions, command
from kosmos_rag.core.text.counts import count


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
        matched = match_sources(sources, tenant.sources(), common.tenant, common.collection)
        removed = tenant.delete(sorted(matched))
    if common.as_json:
        print_json({"tenant": common.tenant, "removed": removed, "sources": sorted(matched)})
    else:
        typer.echo(f"{count(removed, 'document')} removed")
