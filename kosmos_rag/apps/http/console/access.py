"""Pages of the console about who may read what."""

import uuid
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from kosmos_rag.apps.auth.identity import view_as
from kosmos_rag.apps.errors import NotPermitted
from kosmos_rag.apps.http.console.pages import PageRoute, read_form, redirect, render_page
from kosmos_rag.apps.http.console.sessions import ConsoleAdministrator, Cookie, record_view, store_view
from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.types import AccessGrant, are_names
from kosmos_rag.engine.access import export_csv, export_json_lines

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_MAX_NAME, _MAX_PRINCIPALS = 200, 2000
_MAX_DOCUMENTS = 200
"""Documents on a page; an export has all."""
_MEDIA_TYPES = {"csv": "text/csv", "jsonl": "application/jsonl"}


Reader = Annotated[str, Query(max_length=_MAX_NAME)]
Principals = Annotated[str, Query(max_length=_MAX_PRINCIPALS)]


@router.get("/access")
async def access(
    request: Request, caller: ConsoleAdministrator, reader: Reader = "", principals: Principals = ""
) -> Response:
    """Show what a reader may read, and why.

    Args:
        reader: name of the reader; with neither name nor principals only the form is shown.
        principals: those of the reader, separated by commas.
    """
    grants: list[AccessGrant] | None = None
    more = None
    if reader.strip() or principals.strip():
        names = _list_principals(reader, principals)
        grants, more = await caller.run(caller.tenant().access.review_reader, names, limit=_MAX_DOCUMENTS)
    query = urlencode({"reader": reader, "principals": principals})
    return render_page(
        request,
        "access.html",
        reader=reader,
        principals=principals,
        grants=grants,
        documents=len({grant.document_id for grant in grants or ()}),
        more=more is not None,
        may_view=caller.service.settings.service.view_as,
        export=lambda kind: f"/access/export/{kind}?{query}",
    )


@router.get("/access/documents/{document_id}")
async def document_access(request: Request, caller: ConsoleAdministrator, document_id: uuid.UUID) -> Response:
    """Show who may read a document, and why."""
    grants = await caller.run(caller.tenant().access.review_document, document_id)
    if grants is None:
        raise NotFound("there is no such document")
    return render_page(
        request,
        "document_access.html",
        document_id=document_id,
        grants=grants,
        export=lambda kind: f"/access/export/{kind}?document_id={document_id}",
    )


@router.get("/access/export/{kind}")
async def export(
    caller: ConsoleAdministrator,
    kind: Literal["csv", "jsonl"],
    document_id: uuid.UUID | None = None,
    reader: Reader = "",
    principals: Principals = "",
) -> Response:
    """Return a whole review as CSV or JSON Lines.

    Raises RequestError for both a document and a reader, or neither, and NotFound without such a document.

    Args:
        kind: the format.
        document_id: the document whose readers are listed; None for what a reader may read.
        reader: gives the principal `user:NAME`.
        principals: those of the reader, separated by commas.
    """
    if (document_id is None) != bool(reader.strip() or principals.strip()):
        raise RequestError("the review is of a document or of a reader; name one of them")
    review, write = caller.tenant().access, export_csv if kind == "csv" else export_json_lines

    def read() -> str:
        if document_id is None:
            return write(review.iter_reader(_list_principals(reader, principals)))
        if (grants := review.review_document(document_id)) is None:
            raise NotFound("there is no such document")
        return write(grants)

    headers = {"content-disposition": f'attachment; filename="access.{kind}"'}
    return Response(await caller.run(read), media_type=_MEDIA_TYPES[kind], headers=headers)


@router.post("/view-as")
async def begin_view(request: Request, caller: ConsoleAdministrator) -> Response:
    """Look as another reader from the next page on."""
    if not caller.service.settings.service.view_as:
        raise NotPermitted("views as another reader are off; an operator allows them by service.view_as: true")
    fields = await read_form(request)
    reader, principals = fields.get("reader", "").strip(), _parse_principals(fields.get("principals", ""))
    if not reader or not are_names([reader, *principals]):
        raise RequestError("the reader is missing or malformed; give a name, and principals such as department:hr")
    view = view_as(caller.identity, reader, principals)
    await record_view(request, Caller(identity=view, service=caller.service))
    response = redirect("/documents")
    store_view(request, response, view)
    return response


@router.post("/view-as/end")
async def end_view(request: Request) -> Response:
    """Look as oneself again."""
    response = redirect("/access")
    Cookie.VIEW.clear(request, response)
    return response


def _list_principals(reader: str, principals: str) -> list[str]:
    """Return the principals of a named reader."""
    name = reader.strip()
    return [*([f"user:{name}"] if name else []), *_parse_principals(principals)]


def _parse_principals(text: str) -> list[str]:
    """Return the principals of a field, which are separated by commas."""
    return [principal for name in text.split(",") if (principal := name.strip())]
