"""Pages of the console for signing in and out."""

from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from kosmos_rag.apps.auth.openid import CALLBACK_PATH, OpenIdClient
from kosmos_rag.apps.errors import NotAuthenticated
from kosmos_rag.apps.http.console.attempts import clear_attempt, read_attempt, store_attempt
from kosmos_rag.apps.http.console.pages import (
    PageRoute,
    get_service,
    home_path,
    is_local_path,
    read_form,
    redirect,
    render_page,
)
from kosmos_rag.apps.http.console.sessions import Cookie, authenticate, end_session
from kosmos_rag.core.errors import NotFound

router = APIRouter(route_class=PageRoute, include_in_schema=False)

Next = Annotated[str, Query(alias="next")]
"""The page to show afterwards; another host's is ignored."""


@router.get("/sign-in")
async def sign_in_form(request: Request, ended: bool = False, path: Next = "") -> Response:
    """Show the sign-in form."""
    return _render_form(request, path, "It is no longer valid. Sign in again." if ended else None)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Store a valid key or token in a cookie."""
    fields = await read_form(request)
    credentials, path = fields.get("credentials", "").strip(), fields.get("next", "")
    try:
        identity = await authenticate(request, credentials)
    except NotAuthenticated:
        return _render_form(request, path, "This is no valid key or token.", HTTPStatus.UNAUTHORIZED)
    response = redirect(path if is_local_path(path) else home_path(identity))
    Cookie.VIEW.clear(request, response)
    Cookie.SESSION.clear(request, response)
    Cookie.CREDENTIALS.store(request, response, credentials)
    return response


@router.get("/sign-in/openid")
async def begin(request: Request, path: Next = "") -> Response:
    """Send the browser to the identity provider."""
    client = _require_client(request)
    with _count_failed_sign_ins(request):
        url, attempt = await client.begin(path if is_local_path(path) else "")
    response = redirect(url)
    store_attempt(request, response, attempt.state, client.seal_attempt(attempt))
    return response


@router.get(CALLBACK_PATH)
async def complete(request: Request) -> Response:
    """Complete a sign-in with the response of the identity provider."""
    client, state = _require_client(request), request.query_params.get("state", "")
    try:
        # Any page can make a browser send a response that it did not ask for: that is nobody's failed sign-in.
        attempt = client.open_attempt(read_attempt(request, state), state)
    except NotAuthenticated:
        return _render_refusal(request)
    try:
        with _count_failed_sign_ins(request):
            identity = await client.complete(attempt, request.query_params)
    except NotAuthenticated:
        response = _render_refusal(request)
        clear_attempt(request, response, state)
        return response
    # A redirect would leave the new cookie behind: the browser comes from another site. A page that continues does not.
    response = render_page(request, "forward.html", title="Signed in", url=attempt.path or home_path(identity))
    clear_attempt(request, response, state)
    Cookie.VIEW.clear(request, response)
    Cookie.CREDENTIALS.clear(request, response)
    Cookie.SESSION.store(request, response, client.seal_session(identity))
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """Delete the cookies, and sign the user out at the identity provider where it offers that."""
    client = get_service(request).openid
    url = None
    if client is not None and Cookie.SESSION.read(request) is not None:
        url = client.end_session_url()
    # Browsers refuse to follow a form to another host: a page that continues may.
    response = redirect("/sign-in") if url is None else render_page(request, "forward.html", title="Sign out", url=url)
    end_session(request, response)
    return response


def _require_client(request: Request) -> OpenIdClient:
    client = get_service(request).openid
    if client is None:
        raise NotFound("this service offers no sign-in by OpenID Connect; sign in with a key or a token")
    return client


def _count_failed_sign_ins(request: Request) -> AbstractContextManager[None]:
    address = request.client.host if request.client else None
    return get_service(request).rate_limiter.count_failed_sign_ins(address)


def _render_refusal(request: Request) -> Response:
    return _render_form(request, "", "The sign-in did not succeed. Begin again.", HTTPStatus.UNAUTHORIZED)


def _render_form(request: Request, path: str, message: str | None, status: int = HTTPStatus.OK) -> Response:
    client = get_service(request).openid
    return render_page(
        request,
        "sign_in.html",
        status=status,
        message=message,
        next=path if is_local_path(path) else "",
        label=None if client is None else client.label,
    )
