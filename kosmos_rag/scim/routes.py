"""The routes of SCIM 2.0."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
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
    ScimFilter,
    User,
)
from starlette.convertors import StringConvertor, register_url_convertor

from kosmos_rag.apps.http.toolkit.dependencies import Administrator, Caller
from kosmos_rag.apps.http.toolkit.wing import HttpWing
from kosmos_rag.core.errors import NotFound
from kosmos_rag.scim.protocol import (
    ERROR_FORMAT,
    MAX_FILTER,
    MEDIA_TYPE,
    build_config,
    build_list,
    describe_error,
    dump,
    parse_patch,
    parse_resource,
    parse_search,
    parse_selection,
    shows_related,
)
from kosmos_rag.scim.settings import ScimSettings
from kosmos_rag.scim.store import EnterpriseAccount, ScimStore, replace_members
from kosmos_rag.scim.texts import check_texts

_MODELS: dict[str, type[Any]] = {"Users": EnterpriseAccount, "Groups": Group}
_RESOURCE_TYPES = {name[:-1]: ResourceType.from_resource(model) for name, model in _MODELS.items()}
_SCHEMAS = {str(each.id): each for each in (model.to_schema() for model in (User, EnterpriseUser, Group))}
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


class _KindConvertor(StringConvertor):
    """The part of a path that names a kind of resources."""

    regex = "|".join(_MODELS)


register_url_convertor("scim_kind", _KindConvertor())


def _select_model(kind: str) -> type[Any]:
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
    body = dump(resource, context, selection)
    return JSONResponse(body, status, media_type=MEDIA_TYPE, headers=_locate(resource))


def _locate(resource: Any) -> dict[str, str]:
    return {"etag": resource.meta.version, "location": str(resource.meta.location)}


def _answer_definitions(model: type[Any], definitions: list[Any]) -> Response:
    listed = ListResponse[model](total_results=len(definitions), resources=definitions)  # type: ignore[valid-type]
    return JSONResponse(dump(listed, Context.RESOURCE_QUERY_RESPONSE), media_type=MEDIA_TYPE)


def _answer_definition(definitions: Mapping[str, Any], name: str) -> Response:
    if name not in definitions:
        raise NotFound(f"there is no {name[:100]!r}; use one of {', '.join(definitions)}")
    return JSONResponse(dump(definitions[name], Context.RESOURCE_QUERY_RESPONSE), media_type=MEDIA_TYPE)


@router.get("/ServiceProviderConfig")
async def service_provider_config(request: Request, caller: Administrator) -> Response:
    """Show what the interface supports."""
    _open(caller, request)
    config = build_config(caller.service.settings.section(ScimSettings).max_page)
    return JSONResponse(dump(config, Context.RESOURCE_QUERY_RESPONSE), media_type=MEDIA_TYPE)


@router.get("/ResourceTypes")
async def resource_types(request: Request, caller: Administrator) -> Response:
    """List the types of resources."""
    _open(caller, request)
    return _answer_definitions(ResourceType, list(_RESOURCE_TYPES.values()))


@router.get("/ResourceTypes/{name}")
async def resource_type(request: Request, name: str, caller: Administrator) -> Response:
    """Return a type of resources by its name."""
    _open(caller, request)
    return _answer_definition(_RESOURCE_TYPES, name)


@router.get("/Schemas")
async def schemas(request: Request, caller: Administrator) -> Response:
    """List the schemas of the resources."""
    _open(caller, request)
    return _answer_definitions(Schema, list(_SCHEMAS.values()))


@router.get("/Schemas/{name}")
async def schema(request: Request, name: str, caller: Administrator) -> Response:
    """Return a schema by its URN."""
    _open(caller, request)
    return _answer_definition(_SCHEMAS, name)


@router.get("/{kind:scim_kind}")
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
    parsed = None if condition is None else ScimFilter[model](condition)  # type: ignore[valid-type]
    return await _list(caller, request, model, selection, condition=parsed, start=start, count=count)


@router.post("/{kind:scim_kind}/.search")
async def search(request: Request, model: Model, caller: Administrator) -> Response:
    """List users or groups by a filter that the body contains, and no log of addresses."""
    body = parse_search(model, await _read_body(request))
    start = 1 if body.start_index is None else body.start_index
    return await _list(caller, request, model, body, condition=body.filter, start=start, count=body.count)


async def _list(
    caller: Administrator,
    request: Request,
    model: type[Any],
    selection: ResponseParameters[Any] | None,
    *,
    condition: ScimFilter[Any] | None,
    start: int,
    count: int | None,
) -> Response:
    most = caller.service.settings.section(ScimSettings).max_page
    size = most if count is None else min(max(count, 0), most)
    find = partial(
        _open(caller, request).find, start=max(start, 1), count=size, related=shows_related(model, selection)
    )
    page = await caller.run(find, model, condition)
    body = build_list(model, page.resources, start=page.start, total=page.total, selection=selection)
    return JSONResponse(body, media_type=MEDIA_TYPE)


@router.post("/{kind:scim_kind}")
async def create(request: Request, model: Model, caller: Administrator, selection: Selected) -> Response:
    """Create a user or group."""
    store = _open(caller, request)
    resource = parse_resource(model, await _read_body(request), context=Context.RESOURCE_CREATION_REQUEST)
    created = await caller.run(store.create, resource)
    return _answer(created, Context.RESOURCE_CREATION_RESPONSE, 201, selection)


@router.get("/{kind:scim_kind}/{resource_id}")
async def get(request: Request, resource_id: str, model: Model, caller: Administrator, selection: Selected) -> Response:
    """Return a user or group."""
    read = partial(_open(caller, request).get, related=shows_related(model, selection))
    resource = await caller.run(read, model, resource_id)
    return _answer(resource, Context.RESOURCE_QUERY_RESPONSE, 200, selection)


@router.put("/{kind:scim_kind}/{resource_id}")
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
    members = replace_members(replacement) if isinstance(replacement, Group) else None
    change = partial(store.change, members=members, related=shows_related(model, selection))
    replaced = await caller.run(change, model, resource_id, if_match, lambda _: replacement)
    return _answer(replaced, Context.RESOURCE_REPLACEMENT_RESPONSE, 200, selection)


@router.patch("/{kind:scim_kind}/{resource_id}")
async def patch(
    request: Request,
    resource_id: str,
    model: Model,
    caller: Administrator,
    selection: Selected,
    if_match: IfMatch = None,
) -> Response:
    """Change parts of a user or group.

    A change of nothing but members is answered without a body, so that adding one does not read all.
    """
    store = _open(caller, request)
    operations = parse_patch(model, await _read_body(request))
    is_brief = operations.request is None and selection is None
    change = partial(store.change, members=operations.members, related=not is_brief and shows_related(model, selection))
    changed = await caller.run(change, model, resource_id, if_match, partial(operations.apply, model))
    if is_brief:
        return Response(status_code=204, headers=_locate(changed))
    return _answer(changed, Context.RESOURCE_PATCH_RESPONSE, 200, selection)


@router.delete("/{kind:scim_kind}/{resource_id}", status_code=204)
async def delete(
    request: Request, resource_id: str, model: Model, caller: Administrator, if_match: IfMatch = None
) -> None:
    """Delete a user with its memberships, or a group."""
    await caller.run(_open(caller, request).delete, model, resource_id, if_match)


HTTP = HttpWing(routers=(router,), error_format=ERROR_FORMAT)
