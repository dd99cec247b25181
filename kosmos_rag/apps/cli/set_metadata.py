"""kosmos-rag set-metadata: change metadata of documents."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import match_sources, parse_pair, print_json, require_not_blank
from kosmos_rag.apps.cli.options import WriteOptions, command
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.text.counts import count


@command
def set_metadata(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Paths, or source names from `documents`.")],
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=VALUE", help="New value, JSON or text; may be repeated."),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="KEY", help="Key to remove; may be repeated.")
    ] = None,
    *,
    common: WriteOptions,
) -> None:
    """Change metadata of documents without ingesting them again.

    A folder selects all documents below it.
    """
    require_not_blank(sources, "SOURCE")
    changes = dict(map(parse_pair, metadata or ())) | dict.fromkeys(remove or (), None)
    if not changes:
        raise RequestError("there is nothing to change; write --metadata approved=true, or --remove approved")
    with common.open_engine() as engine:
        tenant = engine.tenant(common.tenant, collection=common.collection)
        matched = sorted(match_sources(sources, tenant.sources(), common.tenant, common.collection))
        changed = tenant.update_metadata(matched, changes)
    if common.as_json:
        print_json({"tenant": common.tenant, "changed": changed, "sources": matched})
    else:
        typer.echo(f"{changed} of {count(len(matched), 'document')} changed")
