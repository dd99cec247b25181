"""Pages of the console: questions and answers, sources, the inspector."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import TypeAdapter, ValidationError

from kosmos_rag.apps.errors import NotPermitted
from kosmos_rag.apps.http.console.answers import AnswerPageEvents, QuestionContext, build_reply
from kosmos_rag.apps.http.console.document_text import Marks
from kosmos_rag.apps.http.console.inspector import inspect_result
from kosmos_rag.apps.http.console.links import Span, parse_span, parse_spans
from kosmos_rag.apps.http.console.pages import (
    POLICY,
    POLICY_HEADER,
    PageRoute,
    read_form,
    render_page,
)
from kosmos_rag.apps.http.console.rendering import assets, assets_version
from kosmos_rag.apps.http.console.sessions import ConsoleAdministrator, ConsoleReader
from kosmos_rag.apps.http.console.source_view import (
    PAGE_LINES,
    PageView,
    build_page_view,
    build_source_view,
    first_line,
)
from kosmos_rag.apps.http.routes import resources
from kosmos_rag.apps.http.toolkit.answers import start_answer
from kosmos_rag.apps.http.toolkit.bodies import History, to_turns
from kosmos_rag.apps.http.toolkit.concurrency import SEARCH, question_cost
from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.apps.http.toolkit.streaming import MEDIA_TYPE, EventStreamResponse
from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.source_links import build_link
from kosmos_rag.core.types import EVERYONE, DocumentLines, Turn
from kosmos_rag.engine.api_keys import ADMIN, INGEST
from kosmos_rag.engine.tenant import Tenant

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_CACHE_FOREVER = "public, max-age=31536000, immutable"
_DEPTHS = (10, 20, 50)
_EXAMPLE_QUESTIONS = 4
_EXAMPLE_DOCUMENTS = 12
"""Documents whose headings are read for example questions, at most."""
_CLIENT_CLOSED_REQUEST = 499
_HISTORY: TypeAdapter[History] = TypeAdapter(History)


@router.get("/assets/{version_hash}/{name}")
async def asset(version_hash: str, name: str) -> Response:
    """Return a style sheet, a script or the icon, cacheable forever."""
    if version_hash != assets_version() or name not in assets():
        raise NotFound("there is no such asset")
    content, media_type = assets()[name]
    return Response(content, media_type=media_type, headers={"cache-control": _CACHE_FOREVER})


@router.get("/docs")
async def api_reference(request: Request) -> Response:
    """Show the OpenAPI document by Swagger UI, without a sign-in."""
    response = render_page(request, "api.html")
    # The icons of Swagger UI are in its style sheet.
    response.headers[POLICY_HEADER] = POLICY.replace("img-src 'self'", "img-src 'self' data:")
    return response


@router.get("/")
async def ask_form(request: Request, caller: ConsoleReader) -> Response:
    """Show the question form."""
    options = await _initial_options(caller)
    examples = await caller.run(_propose_questions, caller.scope(options["collection"]))
    return render_page(request, "ask.html", reply=None, question="", examples=examples, **options)


@router.post("/")
async def ask(request: Request, caller: ConsoleReader) -> Response:
    """Answer a question, as events for scripts, else as a page."""
    fields = await read_form(request)
    question, collection = _question(fields), fields.get("collection")
    history = _history(fields)
    scope = caller.scope(collection)
    question_context = QuestionContext(
        collection=collection,
        history=tuple(history),
        history_turns=await caller.run(lambda: scope.history_turns),
        may_inspect=caller.identity.has(ADMIN),
    )
    events = await start_answer(caller, collection, question, {"history": history})
    if MEDIA_TYPE in request.headers.get("accept", ""):
        return EventStreamResponse(events, encode_item=AnswerPageEvents(question_context))
    complete = await events.answer(request.receive)
    if complete is None:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)
    options = await _collection_options(caller, collection)
    return render_page(
        request,
        "ask.html",
        reply=build_reply(complete),
        question_context=question_context,
        question="",
        examples=(),
        **options,
    )


@router.post("/feedback")
async def rate(request: Request, caller: ConsoleReader) -> Response:
    """Store a rating of an answer."""
    if caller.identity.viewed_reader is not None:
        raise NotPermitted("a rating is of the reader; end the view to rate as yourself")
    fields = await read_form(request)
    rating, _, reason = fields.get("rating", "").partition(":")
    await caller.run(
        caller.scope(fields.get("collection")).feedback,
        rating,
        question=fields.get("question"),
        comment=fields.get("comment"),
        reason=reason or fields.get("reason") or None,
    )
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _history(fields: dict[str, str]) -> list[Turn]:
    try:
        return to_turns(_HISTORY.validate_json(fields.get("history", "[]")))
    except ValidationError as error:
        raise RequestError("the conversation cannot be read; open the page again and ask once more") from error


def _question(fields: dict[str, str]) -> str:
    question = fields.get("question", "").strip()
    if not question:
        raise RequestError("the question is missing; write one")
    return question


def _propose_questions(scope: Tenant) -> tuple[str, ...]:
    """Return example questions about sections of a few documents.

    The reader may read the sections. A heading that is a question is one of them.
    """
    questions: list[str] = []
    for document in scope.documents(limit=_EXAMPLE_DOCUMENTS):
        names = [section.section[-1] for section in scope.sections(document.id) if len(section.section) > 1]
        asking = [name for name in names if name.endswith("?")]
        if asking or names:
            name = (asking or names)[len(asking or names) // 2]
            questions.append(name if asking else f"What does \u201c{document.title}\u201d say about {name}?")
        if len(questions) == _EXAMPLE_QUESTIONS:
            break
    return tuple(questions)


async def _initial_options(caller: Caller) -> dict[str, Any]:
    """Return the initial values of a form.

    A single collection is selected, so that its settings apply.
    """
    options = await _collection_options(caller, None)
    if options["collection"] is None and len(options["collections"]) == 1:
        options["collection"] = options["collections"][0].name
    return options


async def _collection_options(caller: Caller, collection: str | None) -> dict[str, Any]:
    return {
        "collections": (await resources.collections(caller)).collections,
        "collection": caller.collection(collection),
        "default_collection": caller.identity.default_collection,
        "may_upload": caller.identity.has(INGEST),
    }


@router.get("/documents/{document_id}")
async def source(
    request: Request,
    caller: ConsoleReader,
    document_id: uuid.UUID,
    version: int | None = None,
    line: Annotated[int, Query(ge=1, le=10**9)] = 1,
    span: str | None = None,
    mark: Annotated[list[str] | None, Query()] = None,
    near: Annotated[list[str] | None, Query()] = None,
    page: Annotated[int | None, Query(ge=1, le=10**6)] = None,
    chunks: bool = False,
) -> Response:
    """Show a document around a line, as formatted text.

    Of a PDF whose file is stored, the page too.

    Args:
        version: the cited version; None without a citation.
        line: the first cited line.
        span: the cited characters, `start-end`.
        mark: spans to mark within them.
        near: uncertain spans, whose paragraphs are marked.
        page: the page to show; None for that of the first cited line.
        chunks: whether to show where the chunks begin.
    """
    tenant = caller.tenant()
    sections = await caller.run(tenant.sections, document_id)
    document_lines = await caller.run(
        _lines, tenant, document_id, first_line(line, sections), cited=version is not None
    )
    outline = await caller.run(tenant.outline, document_id)
    if document_lines is None or outline is None:
        raise NotFound("there is no such document, or none that you may read")
    # Spans are valid in the cited version only.
    changed = version is not None and version != document_lines.document.version
    passage = None if changed else parse_span(span)
    marks = Marks() if changed else Marks(exact=parse_spans(mark or []), near=parse_spans(near or []))
    cited = [*marks.exact, *marks.near] or [passage or (0, 0)]
    page_view = await caller.run(_page_view, tenant, document_lines, cited, page)
    if chunks:
        starts = ((chunk["start"], number) for number, chunk in enumerate(outline.chunks, 1))
        marks = replace(
            marks, chunks=[chunk for chunk in starts if document_lines.start <= chunk[0] < document_lines.end]
        )
    view = await caller.run(build_source_view, document_lines, sections=sections, passage=passage, marks=marks)
    return render_page(
        request,
        "source.html",
        document_lines=document_lines,
        view=view,
        readers=_readers(outline.acl, caller),
        versions=outline.versions,
        chunks=chunks,
        chunks_url=f"{request.url.path}?{request.url.include_query_params(chunks=int(not chunks)).query}",
        changed=changed,
        cited_version=version,
        link=build_link(document_lines.document.metadata, line, line),
        page_view=page_view,
        page_url=lambda number: f"{request.url.path}?{request.url.include_query_params(page=number).query}",
    )


@router.get("/documents/{document_id}/pages/{page}")
async def page_picture(caller: ConsoleReader, document_id: uuid.UUID, page: int) -> Response:
    """Return the picture of a page of a stored PDF."""
    picture = await caller.run(caller.tenant().render_page, document_id, page)
    if picture is None:
        raise NotFound("there is no such page, or none that you may read")
    return Response(picture, media_type="image/png", headers={"x-content-type-options": "nosniff"})


@router.get("/documents/{document_id}/original")
async def original(caller: ConsoleReader, document_id: uuid.UUID) -> Response:
    """Return the stored file of a document."""
    return await resources.original(document_id, caller)


def _readers(acl: Sequence[str], caller: Caller) -> list[str]:
    """Return who may read a document.

    Only those who write documents or administer the tenant may know the others.
    """
    if EVERYONE in acl:
        return ["everyone"]
    if caller.identity.has(INGEST) or caller.identity.has(ADMIN):
        return list(acl)
    return [principal for principal in acl if principal in caller.identity.principals]


def _page_view(
    tenant: Tenant, document_lines: DocumentLines, spans: Sequence[Span], page: int | None
) -> PageView | None:
    """Return the view of a page.

    The result is None where the format has none, or the file is not stored.
    """
    document = document_lines.document
    rectangles = [
        rectangle
        for start, end in spans
        for rectangle in tenant.rectangles(document.id, start, end, version=document.version)
    ]
    number = page or (rectangles[0].page if rectangles else document_lines.page_start or 1)
    if number > document_lines.total_pages:
        return None
    picture = tenant.render_page(document.id, number)
    return None if picture is None else build_page_view(picture, number, rectangles)


def _lines(tenant: Tenant, document_id: uuid.UUID, first: int, *, cited: bool) -> DocumentLines | None:
    try:
        return tenant.read_lines(document_id, first=first, count=PAGE_LINES)
    except RequestError:
        if not cited:
            raise
        # The cited version had more lines than the current one.
        return tenant.read_lines(document_id, count=PAGE_LINES)


@router.get("/inspector")
async def inspector_form(request: Request, caller: ConsoleAdministrator) -> Response:
    """Show the form of the inspector."""
    options = await _initial_options(caller)
    return render_page(
        request, "inspector.html", inspection=None, question="", depth=_DEPTHS[0], depths=_DEPTHS, **options
    )


@router.post("/inspector")
async def inspector(request: Request, caller: ConsoleAdministrator) -> Response:
    """Show how the passages of a question were retrieved."""
    fields = await read_form(request)
    question, collection = _question(fields), fields.get("collection")
    depth = next((depth for depth in _DEPTHS if str(depth) == fields.get("depth")), _DEPTHS[0])
    cost = question_cost(SEARCH, question, k=depth)
    result = await caller.run_at_cost(cost, caller.scope(collection).search, question, depth)
    options = await _collection_options(caller, collection)
    return render_page(
        request,
        "inspector.html",
        inspection=inspect_result(result),
        question=question,
        depth=depth,
        depths=_DEPTHS,
        **options,
    )
