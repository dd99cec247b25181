"""The console's pages: a question and its answer, the source behind a citation, the inspector, and signing in."""

import uuid
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from kosmos_rag.apps.auth.api_keys import ADMIN
from kosmos_rag.apps.http.concurrency import SEARCH, question_cost
from kosmos_rag.apps.http.console.answers import reply
from kosmos_rag.apps.http.console.inspector import inspection
from kosmos_rag.apps.http.console.links import span_of, spans_of
from kosmos_rag.apps.http.console.pages import PageRoute, form, home_of, page, see_other
from kosmos_rag.apps.http.console.rendering import assets, edition, render
from kosmos_rag.apps.http.console.sessions import VisitingAdministrator, VisitingReader, authenticate, forget, keep
from kosmos_rag.apps.http.console.source_view import BEFORE, LINES, reading
from kosmos_rag.apps.http.dependencies import Caller
from kosmos_rag.apps.http.routes import resources
from kosmos_rag.apps.http.routes.search import start_answer
from kosmos_rag.apps.http.streaming import MEDIA_TYPE, EventStreamResponse, format_event
from kosmos_rag.core.errors import NotAuthenticated, NotFound, RequestError
from kosmos_rag.core.types import Answer, DocumentLines
from kosmos_rag.engine.tenant import Tenant

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_FOR_GOOD = "public, max-age=31536000, immutable"
_DEPTHS = (10, 20, 50)
_GONE = 499


@router.get("/assets/{of}/{name}")
async def asset(of: str, name: str) -> Response:
    """Give out a style sheet, a script or the icon, to be kept for good."""
    if of != edition() or name not in assets():
        raise NotFound("there is no such asset")
    content, media_type = assets()[name]
    return Response(content, media_type=media_type, headers={"cache-control": _FOR_GOOD})


@router.get("/sign-in")
async def sign_in_form(request: Request, ended: bool = False) -> Response:
    """Show the form that takes a key or token."""
    return page(request, "sign_in.html", refused="It is no longer valid. Sign in again." if ended else None)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Have the browser keep a key or token, where it is good."""
    credentials = (await form(request)).get("credentials", "").strip()
    try:
        visitor = await authenticate(request, credentials)
    except NotAuthenticated:
        refused = "This is no valid key or token."
        return page(request, "sign_in.html", status=HTTPStatus.UNAUTHORIZED, refused=refused)
    response = see_other(home_of(visitor))
    keep(request, response, credentials)
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """Have the browser forget the key or token."""
    response = see_other("/sign-in")
    forget(request, response)
    return response


@router.get("/")
async def ask_form(request: Request, caller: VisitingReader) -> Response:
    """Show the form that takes a question."""
    return page(request, "ask.html", reply=None, question="", **await _offered(caller))


@router.post("/")
async def ask(request: Request, caller: VisitingReader) -> Response:
    """Answer a question: as events where a script asks for them, else as a page."""
    fields = await form(request)
    question, collection = _question(fields), fields.get("collection")
    inspects = caller.identity.has(ADMIN)
    events = await start_answer(caller, collection, question, {})
    if MEDIA_TYPE in request.headers.get("accept", ""):
        # The answer as the page has it follows the others: texts are escaped in one place, the templates.
        def rendered(answer: Answer) -> bytes:
            html = render("answer.html", reply=reply(answer), collection=collection, inspects=inspects)
            return format_event("page", {"html": html})

        return EventStreamResponse(events, final_event=rendered)
    whole = await events.answer(request.receive)
    if whole is None:
        return Response(status_code=_GONE)
    chosen = await _chosen(caller, collection)
    return page(request, "ask.html", reply=reply(whole), question=question, inspects=inspects, **chosen)


def _question(fields: dict[str, str]) -> str:
    question = fields.get("question", "").strip()
    if not question:
        raise RequestError("the question is missing; write one")
    return question


async def _offered(caller: Caller) -> dict[str, Any]:
    """Return what a form is first shown with: where there is one collection, its own settings apply."""
    chosen = await _chosen(caller, None)
    only = chosen["collections"][0].name if len(chosen["collections"]) == 1 else None
    return chosen | {"collection": only}


async def _chosen(caller: Caller, collection: str | None) -> dict[str, Any]:
    found = (await resources.collections(caller)).collections
    return {"collections": found, "collection": collection}


@router.get("/documents/{document_id}")
async def source(
    request: Request,
    caller: VisitingReader,
    document_id: uuid.UUID,
    version: int | None = None,
    line: Annotated[int, Query(ge=1, le=10**9)] = 1,
    span: str | None = None,
    mark: Annotated[list[str] | None, Query()] = None,
) -> Response:
    """Show a document's text around a line; `span` is what a citation points at, and each `mark` a part of that."""
    first = max(1, line - BEFORE)
    shown = await caller.run(_lines, caller.tenant(), document_id, first, cited=version is not None)
    if shown is None:
        raise NotFound("there is no such document, or none that you may read")
    # Places are those of the version that was cited: in another one they say nothing.
    changed = version is not None and version != shown.document.version
    passage, marks = (None, []) if changed else (span_of(span), spans_of(mark or []))
    return page(
        request,
        "source.html",
        shown=shown,
        reading=reading(shown, passage=passage, marks=marks),
        passage=passage,
        changed=changed,
        cited_version=version,
    )


def _lines(scope: Tenant, document_id: uuid.UUID, first: int, *, cited: bool) -> DocumentLines | None:
    try:
        return scope.read_lines(document_id, first=first, count=LINES)
    except RequestError:
        if not cited:
            raise
        # The version that was cited had more lines than the one that is there now.
        return scope.read_lines(document_id, count=LINES)


@router.get("/inspector")
async def inspector_form(request: Request, caller: VisitingAdministrator) -> Response:
    """Show the form of the inspector."""
    offered = await _offered(caller)
    return page(request, "inspector.html", seen=None, question="", depth=_DEPTHS[0], depths=_DEPTHS, **offered)


@router.post("/inspector")
async def inspector(request: Request, caller: VisitingAdministrator) -> Response:
    """Show how the passages for a question were found."""
    fields = await form(request)
    question, collection = _question(fields), fields.get("collection")
    depth = next((depth for depth in _DEPTHS if str(depth) == fields.get("depth")), _DEPTHS[0])
    cost = question_cost(SEARCH, question, k=depth)
    found = await caller.run_at_cost(cost, caller.tenant(collection).search, question, depth)
    chosen = await _chosen(caller, collection)
    return page(
        request,
        "inspector.html",
        seen=inspection(found),
        question=question,
        depth=depth,
        depths=_DEPTHS,
        **chosen,
    )
