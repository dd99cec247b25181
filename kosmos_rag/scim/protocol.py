"""Requests and answers of SCIM 2.0 as scim2-models reads and writes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    Context,
    Error,
    ETag,
    Filter,
    Group,
    InvalidFilterException,
    InvalidSyntaxException,
    ListResponse,
    Patch,
    PatchOp,
    ResponseParameters,
    SCIMException,
    ScimPolicy,
    SearchRequest,
    ServiceProviderConfig,
    Sort,
    User,
)

from kosmos_rag.apps.http.toolkit.errors import ErrorFormat
from kosmos_rag.apps.problem_details import Problem
from kosmos_rag.scim.members import MemberChange, read_changes, take_members

Resource = TypeVar("Resource", bound=User[Any] | Group)

PREFIX = "/scim/"
"""What the paths of the interface begin with."""
MEDIA_TYPE = "application/scim+json"
LENIENT = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
"""Entra sends attributes of its own, removes members by a value, and writes to values that do not exist yet."""
_READ_ONLY = ("id", "meta", "schemas")
MAX_FILTER = 2000
"""Most characters of a filter or path: the time to parse them grows faster than they do."""
_MAX_OPERATIONS = 1000
_MAX_COPIES = 100
"""Most operations on attributes other than members: the library copies the resource for each."""


def parse_resource(model: type[Resource], body: Any, *, context: Context) -> Resource:
    """Return the user or group of a request. Raises SCIMException, ValidationError.

    Args:
        model: What the body describes.
        body: The parsed JSON.
        context: Whether it is to be created or replaced.
    """
    with LENIENT:
        return cast("Resource", model.model_validate(_require_object(body), scim_ctx=context))


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchRequest:
    """The operations of a PATCH."""

    members: MemberChange | None
    """What it changes of the members of a group; None where no operation names them."""
    request: Mapping[str, Any] | None
    """The operations on attributes; None without one."""

    def apply(self, model: type[Resource], resource: Resource) -> Resource:
        """Change the attributes of a resource in place; return it. Raises SCIMException, ValidationError.

        Args:
            model: Class of the resource, with its extensions.
            resource: Without members, or they are copied for each operation.
        """
        if self.request is not None:
            with LENIENT:
                patch: Any = PatchOp[model].model_validate(self.request, scim_ctx=Context.RESOURCE_PATCH_REQUEST)  # type: ignore[valid-type]
                patch.patch(resource)
        return resource


def parse_patch(model: type[Any], body: Any) -> PatchRequest:
    """Return the operations of a request. Raises SCIMException.

    Args:
        model: Class of the resource.
        body: The parsed JSON.
    """
    request = dict(_require_object(body))
    operations = request.get("Operations")
    if not isinstance(operations, list) or not 0 < len(operations) <= _MAX_OPERATIONS:
        raise InvalidSyntaxException(detail=f"Operations is missing; send 1 to {_MAX_OPERATIONS}")
    rest = [_simplify(_check_operation(operation)) for operation in operations]
    of_members: list[Mapping[str, Any]] = []
    if issubclass(model, Group):
        parts = [take_members(operation) for operation in rest]
        of_members = [members for members, _ in parts if members is not None]
        rest = [other for _, other in parts if other is not None]
    if len(rest) > _MAX_COPIES:
        raise InvalidSyntaxException(detail=f"{len(rest)} operations change attributes; send up to {_MAX_COPIES}")
    return PatchRequest(
        members=read_changes(of_members) if of_members else None,
        request=request | {"Operations": rest} if rest else None,
    )


def _check_operation(operation: Any) -> Mapping[str, Any]:
    path = _require_object(operation).get("path")
    if path is not None and (not isinstance(path, str) or len(path) > MAX_FILTER):
        raise InvalidSyntaxException(detail=f"a path is no text of up to {MAX_FILTER} characters")
    return cast("Mapping[str, Any]", operation)


def parse_search(model: type[Any], body: Any) -> SearchRequest[Any]:
    """Return the search of a body. Raises SCIMException, ValidationError.

    Args:
        model: The class of the resources.
        body: The parsed JSON.
    """
    for name, value in _require_object(body).items():
        if name.casefold() == "filter" and len(str(value)) > MAX_FILTER:
            raise InvalidFilterException(detail=f"the filter is longer than {MAX_FILTER} characters")
    with LENIENT:
        return SearchRequest[model].model_validate(body, scim_ctx=Context.SEARCH_REQUEST)  # type: ignore[valid-type]


def parse_selection(model: type[Any], attributes: str | None, excluded: str | None) -> ResponseParameters[Any] | None:
    """Return the attributes that an answer has; None for all. Raises SCIMException, ValidationError.

    Args:
        attributes: Names of those that it has, separated by commas; None for all.
        excluded: Names of those that it has not.
    """
    names = {"attributes": attributes, "excludedAttributes": excluded}
    lists = {key: [name.strip() for name in text.split(",")] for key, text in names.items() if text}
    return ResponseParameters[model].model_validate(lists) if lists else None  # type: ignore[valid-type]


def shows_related(model: type[Any], selection: ResponseParameters[Any] | None) -> bool:
    """Return whether an answer may have the groups of users, or the members of groups."""
    if not issubclass(model, Group):
        return True
    excluded = (selection.excluded_attributes if selection else None) or ()
    return all(str(name).casefold() != "members" for name in excluded)


def dump(resource: Any, context: Context, selection: ResponseParameters[Any] | None = None) -> dict[str, Any]:
    """Return the JSON of a resource or message.

    Args:
        selection: The attributes that it has; None for all.
    """
    with LENIENT:
        dumped: dict[str, Any] = resource.model_dump(mode="json", scim_ctx=context, response_parameters=selection)
    return dumped


def build_list(
    model: type[Resource],
    resources: list[Resource],
    *,
    start: int,
    total: int,
    selection: ResponseParameters[Any] | None = None,
) -> dict[str, Any]:
    """Return a page of resources as a ListResponse.

    Args:
        start: Number of the first one, from 1.
        total: Number of the resources of all pages.
        selection: The attributes of each resource; None for all.
    """
    response = ListResponse[model](  # type: ignore[valid-type]
        total_results=total, start_index=start, items_per_page=len(resources), resources=resources
    )
    return dump(response, Context.RESOURCE_QUERY_RESPONSE, selection)


def describe_error(error: SCIMException | ValidationError) -> tuple[int, dict[str, Any]]:
    """Return status and body of a refused request."""
    if isinstance(error, SCIMException):
        message = error.to_error()
    else:
        errors = Error.from_validation_errors(error)
        message = errors[0] if errors else Error(status=HTTPStatus.BAD_REQUEST)
    return int(message.status or HTTPStatus.BAD_REQUEST), message.model_dump(mode="json")


def build_config(max_page: int) -> ServiceProviderConfig:
    """Return what the interface supports.

    Args:
        max_page: Most resources of a page.
    """
    return ServiceProviderConfig(
        patch=Patch(supported=True),
        bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=Filter(supported=True, max_results=max_page),
        change_password=ChangePassword(supported=False),
        sort=Sort(supported=False),
        etag=ETag(supported=True),
        authentication_schemes=[
            AuthenticationScheme(
                type=AuthenticationScheme.Type.oauthbearertoken,
                name="API key",
                description="A key with the scope admin",
                primary=True,
            )
        ],
    )


def _build_problem(problem: Problem, detail: str, _: dict[str, Any]) -> dict[str, Any]:
    error = Error(status=_scim_status(problem.status), detail=detail)
    body: dict[str, Any] = error.model_dump(mode="json")
    return body


def _scim_status(status: int) -> int:
    return HTTPStatus.BAD_REQUEST if status == HTTPStatus.UNPROCESSABLE_ENTITY else status


def _require_object(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise InvalidSyntaxException(detail="the body or an operation is no JSON object")
    return body


def _simplify(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an operation without read-only keys."""
    value = operation.get("value")
    if operation.get("path") or not isinstance(value, dict):
        return operation
    return {**operation, "value": {key: entry for key, entry in value.items() if key not in _READ_ONLY}}


ERROR_FORMAT = ErrorFormat(
    prefix=PREFIX, name="ScimError", schema={"type": "object"}, build=_build_problem, status=_scim_status
)
