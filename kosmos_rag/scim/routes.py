"""The routes of SCIM 2.0."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from scim2_models import (
    Context,
    EnterpriseUser,
    Group,
    InvalidSyntaxException,
    ListResponse,
    ResourceType,
    ResponseParameters,
    Schema,
    SCIMException,
    User,
)

from kosmos_rag.apps.http.toolkit.dependencies import Administrator, Caller
from kosmos_rag.apps.http.toolkit.wing import HttpWing
from kosmos_rag.core.errors import NotFound
from kosmos_rag.scim.protocol import (
    ERROR_FORMAT,
    MAX_FILTER,
    MEDIA_TYPE,
    apply_patch,
    build_config,
    build_page,
    describe_error,
    dump,
    parse_resource,
    parse_selection,
)
from kosmos_rag.scim.settings import ScimSettings
from kosmos_rag.scim.store import EnterpriseAccount, ScimStore
from kosmos_rag.scim.texts import check_texts

_MODELS: dict[str, type[Any]] = {"Users": EnterpriseAccount, "Groups": Group}
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ScimRoute(APIRoute):
    """A route whose refusals are errors of SCIM."""

    def get_route_handler(self) -> Handler:
        """Return the handler of a request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except (SCIMException, ValidationError) as error:
                status, body = describe_error(error)
                return JSONResponse(body, status, media_type=MEDIA_TYPE)

        return handle


router = APIRouter(prefix="/scim/v2", route_class=ScimRoute, include_in_schema=False)
IfMatch = Annotated[str | None, Header(max_length=MAX_FILTER)]


def _select_model(kind: str) -> type[Any]:
    if kind not in _MODELS:
        raise NotFound(f"there is no endpoint {kind[:60]!r}; use Users or Groups")
    return _MODELS[kind]


Model = Annotated[type[Any], Depends(_select_model)]


def _select_attributes(
    model: Model,
    attributes: Annotated[str | None, Query(max_length=MAX_FILTER)] = None,
    excluded: Annotated[str | None, Query(alias="excludedAttributes", max_length=MAX_FILTER)] = None,
    entra: Annotated[str | None, Query(alias="aadOptscim062020")] = None,  # noqa: ARG001 — a switch of Entra itself
) -> ResponseParameters[Any] | None:
    return parse_selection(model, attributes, excluded)


Selected = Annotated[ResponseParameters[Any] | None, Depends(_select_attributes)]


def _open(caller: Caller, request: Request) -> ScimStore:
    if not caller.service.settings.section(ScimSettings).enabled:
        raise NotFound("SCIM is not enabled; set scim.enabled")
    return ScimStore(caller.tenant(), f"{str(request.base_url).rstrip('/')}/scim/v2")


async def _read_body(request: Request) -> Any:
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        raise InvalidSyntaxException(detail="the body is no JSON") from None
    check_texts(body)
    return body


def _answer(resource: Any, context: Context, status: int, selection: ResponseParameters[Any] | None) -> Response:
    headers = {"etag": resource.meta.version, "location": str(resource.meta.location)}
    body = dump(resource, context, selection)
    return JSONResponse(body, status, media_type=MEDIA_TYPE, headers=headers)


@router.get("/ServiceProviderConfig")
async def service_provider_config(request: Request, caller: Administrator) -> Response:
    """Show what the interface supports."""
    _open(caller, request)
    return JSONResponse(dump(build_config(), Context.RESOURCE_QUERY_RESPONSE), media_type=MEDIA_TYPE)


@router.get("/ResourceTypes")
async def resource_types(request: Request, caller: Administrator) -> Response:
    """List the types of resources."""
    _open(caller, request)
    types = [ResourceType.from_resource(model) for model in _MODELS.values()]
    listed = ListResponse[ResourceType](total_results=len(types), resources=types)
    return JSONResponse(dump(listed, Context.RESOURCE_QUERY_RESPONSE), media_type=MEDIA_TYPE)


@router.get("/Schemas")
async def schemas(request: Request, caller: Administrator) -> Response:
    """List the schemas of the resources."""
    _open(caller, request)
    definitions = [model.to_schema() for model in (User, EnterpriseUser, Group)]
    listed = ListResponse[Schema](total_results=len(definitions), resources=definitions)
    return JSONResponse(dump(listed, Context.RESOURCE_QUERY_RESPONSE), media_type=MEDIA_TYPE)


@router.get("/{kind}")
async def find(
    request: Request,
    model: Model,
    caller: Administrator,
    selection: Selected,
    condition: Annotated[str | None, Query(alias="filter", max_length=MAX_FILTER)] = None,
    start: Annotated[int, Query(alias="startIndex")] = 1,
    count: Annotated[int | None, Query()] = None,
) -> Response:
    """List users or groups by a filter, a page at a time."""
    most = caller.service.settings.section(ScimSettings).max_page
    resources = await caller.run(_open(caller, request).find, model, condition)
    size = most if count is None else min(max(count, 0), most)
    body = build_page(model, resources, max(start, 1), size, selection)
    return JSONResponse(body, media_type=MEDIA_TYPE)


@router.post("/{kind}")
async def create(request: Request, model: Model, caller: Administrator, selection: Selected) -> Response:
    """Create a user or group."""
    store = _open(caller, request)
    resource = parse_resource(model, await _read_body(request), context=Context.RESOURCE_CREATION_REQUEST)
    created = await caller.run(store.create, resource)
    return _answer(created, Context.RESOURCE_CREATION_RESPONSE, 201, selection)


@router.get("/{kind}/{resource_id}")
async def get(request: Request, resource_id: str, model: Model, caller: Administrator, selection: Selected) -> Response:
    """Return a user or group."""
    resource = await caller.run(_open(caller, request).get, model, resource_id)
    return _answer(resource, Context.RESOURCE_QUERY_RESPONSE, 200, selection)


@router.put("/{kind}/{resource_id}")
async def replace(
    request: Request,
    resource_id: str,
    model: Model,
    caller: Administrator,
    selection: Selected,
    if_match: IfMatch = None,
) -> Response:
    """Replace a user or group."""
    store = _open(caller, request)
    body = await _read_body(request)
    replacement = parse_resource(model, body, context=Context.RESOURCE_REPLACEMENT_REQUEST)
    replaced = await caller.run(store.change, model, resource_id, if_match, lambda _: replacement)
    return _answer(replaced, Context.RESOURCE_REPLACEMENT_RESPONSE, 200, selection)


@router.patch("/{kind}/{resource_id}")
async def patch(
    request: Request,
    resource_id: str,
    model: Model,
    caller: Administrator,
    selection: Selected,
    if_match: IfMatch = None,
) -> Response:
    """Change parts of a user or group."""
    store = _open(caller, request)
    body = await _read_body(request)
    changed = await caller.run(
        store.change, model, resource_id, if_match, lambda current: apply_patch(model, current, body)
    )
    return _answer(changed, Context.RESOURCE_PATCH_RESPONSE, 200, selection)


@router.delete("/{kind}/{resource_id}", status_code=204)
async def delete(
    request: Request, resource_id: str, model: Model, caller: Administrator, if_match: IfMatch = None
) -> None:
    """Delete a user with its memberships, or a group."""
    await caller.run(_open(caller, request).delete, model, resource_id, if_match)


HTTP = HttpWing(routers=(router,), error_format=ERROR_FORMAT)
