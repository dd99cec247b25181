"""kosmos-rag access: who may read a document, and what a reader may read."""

from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json, table
from kosmos_rag.apps.cli.options import ReadOptions, command
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import NotFound, RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.types import AccessGrant
    from kosmos_rag.engine.tenant import Tenant


@command
def access(
    document: Annotated[
        str | None, typer.Option("--document", metavar="SOURCE", help="Who may read this document, and why.")
    ] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option("--principal", metavar="NAME", help="What a reader with this principal may read; repeatable."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="NAME", help="What the holder of this API key may read.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="Print JSON Lines.")] = False,
    *,
    common: ReadOptions,
) -> None:
    """Review who may read a document, or what a reader may read."""
    from kosmos_rag.engine.access import export_csv, export_json_lines

    if sum(option is not None for option in (document, principal, key)) != 1:
        raise RequestError("give one of --document, --principal and --key")
    if sum((as_csv, as_lines, common.as_json)) > 1:
        raise RequestError("give one of --csv, --jsonl and --json")
    with common.open_engine() as engine:
        grants = _review(engine.tenant(common.tenant, collection=common.collection), document, principal, key)
    if as_csv or as_lines:
        typer.echo(export_csv(grants) if as_csv else export_json_lines(grants), nl=False)
    elif common.as_json:
        print_json({"tenant": common.tenant, "grants": [grant.to_dict() for grant in grants]})
    else:
        _print(grants)


def _review(
    tenant: "Tenant", document: str | None, principals: list[str] | None, key: str | None
) -> "list[AccessGrant]":
    if document is None:
        names = principals if principals is not None else tenant.access.principals_of_key(str(key))
        return [grant for grant in tenant.access.iter_reader(names) if tenant.collection in {None, grant.collection}]
    (document_id,) = tenant.document_ids([document])
    grants = tenant.access.review_document(document_id)
    if grants is None:
        raise NotFound(f"there is no document {document!r} in this collection; see `kosmos-rag documents`")
    return grants


def _print(grants: "list[AccessGrant]") -> None:
    rows = table("document", "collection", "principal", "origin", "API keys", "found by searches")
    for grant in grants:
        origin = str(grant.origin) if grant.feed is None else f"{grant.origin} {one_line(grant.feed)}"
        searchable = "yes" if grant.searchable else "no"
        cells = (one_line(grant.source), grant.collection, one_line(grant.principal), origin, ", ".join(grant.keys))
        rows.add_row(*cells, searchable)
    console().print(rows if grants else "nobody may read it, or nothing is readable")
