"""Pages of the console about who may read what."""

from fastapi import APIRouter, Request, Response

from kosmos_rag.apps.auth.identity import view_as
from kosmos_rag.apps.http.console.pages import PageRoute, read_form, redirect, render_page
from kosmos_rag.apps.http.console.sessions import ConsoleAdministrator, Cookie, store_view
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import are_names

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/access")
async def access(request: Request, _: ConsoleAdministrator) -> Response:
    """Show the form to look as another reader."""
    return render_page(request, "access.html", reader="", principals="")


@router.post("/view-as")
async def begin_view(request: Request, caller: ConsoleAdministrator) -> Response:
    """Look as another reader from the next page on."""
    fields = await read_form(request)
    reader, principals = fields.get("reader", "").strip(), parse_principals(fields.get("principals", ""))
    if not reader or not are_names([reader, *principals]):
        raise RequestError("the reader is missing or malformed; give a name, and principals such as department:hr")
    response = redirect("/documents")
    store_view(request, response, view_as(caller.identity, reader, principals))
    return response


@router.post("/view-as/end")
async def end_view(request: Request) -> Response:
    """Look as oneself again."""
    response = redirect("/access")
    Cookie.VIEW.clear(request, response)
    return response


def parse_principals(text: str) -> list[str]:
    """Return the principals of a field, which are separated by commas."""
    return [principal for name in text.split(",") if (principal := name.strip())]
