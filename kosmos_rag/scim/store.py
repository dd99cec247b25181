"""Users and groups of a tenant in the database."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb
from scim2_models import (
    Context,
    EnterpriseUser,
    Group,
    InvalidValueException,
    Meta,
    NotFoundException,
    PreconditionFailedException,
    ScimFilter,
    UniquenessException,
    User,
)
from scim2_models.path import CompareOperator, Comparison

from kosmos_rag.core.types import is_text
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.scim.members import MemberChange
from kosmos_rag.scim.names import fold_name
from kosmos_rag.scim.sql import statement
from kosmos_rag.scim.texts import check_texts

EnterpriseAccount = User[EnterpriseUser]
Resource = TypeVar("Resource", bound=User[Any] | Group)
_MAX_NAME = 300
_BATCH = 500
"""Resources that a filter without an index has in memory at a time."""
_MAX_START = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredResource:
    """A row of a user or group."""

    id: uuid.UUID
    content: Mapping[str, Any]
    version: int
    created_at: datetime
    modified_at: datetime

    @property
    def etag(self) -> str:
        """Weak ETag of the version."""
        return f'W/"{self.version}"'


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourcePage(Generic[Resource]):
    """Some of the resources that a request found."""

    total: int
    """Number of all that were found."""
    start: int
    """Number of the first one of the page, from 1."""
    resources: list[Resource]


class ScimStore:
    """Users and groups of one tenant.

    Every call raises ConfigError without `database.worker_url`, and DatabaseError; SCIMException where a request is
    refused.
    """

    def __init__(self, tenant: Tenant, base_url: str) -> None:
        """Create the store.

        Args:
            base_url: Address of the interface, for the locations of resources.
        """
        self._tenant = tenant
        self._base_url = base_url

    def create(self, resource: Resource) -> Resource:
        """Create a user or group; return it as it is stored."""
        resource_id = uuid.uuid4()
        with self._tenant.sessions.write() as connection:
            self._tenant.sessions.create_tenant(connection)
            values = {**self._columns(_with_active(resource, default=True)), "id": resource_id}
            with _refuse_conflicts(values["name"]):
                connection.execute(statement("insert_resource"), values)
                if isinstance(resource, Group):
                    self._change_members(connection, resource_id, replace_members(resource))
            return self._read(connection, type(resource), resource_id)

    def get(self, model: type[Resource], resource_id: str, *, related: bool = True) -> Resource:
        """Return a user or group.

        Args:
            related: With the members of a group, or the groups of a user.
        """
        with self._tenant.sessions.write() as connection:
            return self._read(connection, model, _parse_id(resource_id), related=related)

    def change(
        self,
        model: type[Resource],
        resource_id: str,
        etag: str | None,
        apply: Callable[[Resource], Resource],
        *,
        members: MemberChange | None = None,
        related: bool = True,
    ) -> Resource:
        """Change a user or group, and return it as it is stored.

        Args:
            etag: The versions that it may have, separated by commas; None or * for any.
            apply: Returns the resource after the change; it is called with one without members and groups.
            members: What changes of the members of a group, which may have very many.
            related: See `get`.
        """
        with self._tenant.sessions.write() as connection:
            current = self._read(connection, model, _parse_id(resource_id), lock=True, related=False)
            _check_version(current, etag)
            active = getattr(current, "active", None)
            changed = _with_active(apply(current), default=active is not False)
            values = {**self._columns(changed), "id": _parse_id(resource_id)}
            with _refuse_conflicts(values["name"]):
                connection.execute(statement("update_resource"), values)
                if members is not None:
                    self._change_members(connection, values["id"], members)
            return self._read(connection, model, values["id"], related=related)

    def delete(self, model: type[Resource], resource_id: str, etag: str | None = None) -> None:
        """Delete a user with its memberships, or a group. Args: see `change`."""
        values = {**self._scope(model), "id": _parse_id(resource_id)}
        with self._tenant.sessions.write() as connection:
            _check_version(self._read(connection, model, values["id"], lock=True, related=False), etag)
            connection.execute(statement("delete_resource"), values)

    def find(
        self,
        model: type[Resource],
        condition: ScimFilter[Any] | None,
        *,
        start: int,
        count: int,
        related: bool = True,
    ) -> ResourcePage[Resource]:
        """Return a page of the users or groups that a filter matches, the oldest first.

        Equal names and external ids are found by an index; other filters read all resources, in batches.

        Args:
            start: Number of the first one, from 1.
            count: Most resources of the page.
            related: See `get`; a filter without an index reads them all the same.
        """
        keys = _index_values(condition)
        check_texts(keys)
        values = {**self._scope(model), "name_key": None, "external_id": None, **keys}
        start = min(start, _MAX_START)
        with self._tenant.sessions.write() as connection:
            if condition is not None and not keys:
                matching = filter(condition.match, self._read_all(connection, model, values))
                return _select_page(matching, start, count)
            row = connection.execute(statement("count_resources"), values).fetchone()
            paging = {**values, "limit": count, "offset": start - 1}
            page = self._list(connection, model, paging, related=related) if count else []
            return ResourcePage(total=0 if row is None else row[0], start=start, resources=page)

    def _read_all(
        self, connection: psycopg.Connection, model: type[Resource], values: Mapping[str, Any]
    ) -> Iterator[Resource]:
        """Yield all resources in the order of pages, with a batch of them in memory."""
        with connection.cursor("scim_resources", row_factory=class_row(StoredResource)) as cursor:
            cursor.execute(statement("list_resources"), {**values, "limit": None, "offset": 0})
            while rows := cursor.fetchmany(_BATCH):
                yield from self._build(connection, model, rows)

    def _list(
        self, connection: psycopg.Connection, model: type[Resource], values: Mapping[str, Any], *, related: bool
    ) -> list[Resource]:
        with connection.cursor(row_factory=class_row(StoredResource)) as cursor:
            rows = cursor.execute(statement("list_resources"), values).fetchall()
        return self._build(connection, model, rows, related=related)

    def _read(
        self,
        connection: psycopg.Connection,
        model: type[Resource],
        resource_id: uuid.UUID,
        *,
        lock: bool = False,
        related: bool = True,
    ) -> Resource:
        query = statement("lock_resource") if lock else statement("read_resource")
        with connection.cursor(row_factory=class_row(StoredResource)) as cursor:
            values = {**self._scope(model), "id": resource_id}
            row = cursor.execute(query, values).fetchone()
        if row is None:
            raise _not_found(str(resource_id))
        return self._build(connection, model, [row], related=related)[0]

    def _build(
        self,
        connection: psycopg.Connection,
        model: type[Resource],
        rows: Sequence[StoredResource],
        *,
        related: bool = True,
    ) -> list[Resource]:
        """Return resources with their meta data, and with members or groups."""
        is_group = issubclass(model, Group)
        query = statement("list_members") if is_group else statement("list_groups_of_users")
        values = {"tenant_id": self._tenant.id, "ids": [row.id for row in rows]}
        references: defaultdict[uuid.UUID, list[dict[str, Any]]] = defaultdict(list)
        for owner, other, name in connection.execute(query, values).fetchall() if rows and related else ():
            folder = "Users" if is_group else "Groups"
            reference = {"value": str(other), "display": name, "$ref": f"{self._base_url}/{folder}/{other}"}
            references[owner].append({**reference, "type": "User"} if is_group else reference)
        key, kind = ("members", "Group") if is_group else ("groups", "User")
        resources = []
        for row in rows:
            resource = model.model_validate({**row.content, "id": str(row.id), key: references[row.id] or None})
            resource.meta = Meta(
                resource_type=kind,
                created=row.created_at,
                last_modified=row.modified_at,
                version=row.etag,
                location=f"{self._base_url}/{kind}s/{row.id}",
            )
            resources.append(cast("Resource", resource))
        return resources

    def _change_members(self, connection: psycopg.Connection, group_id: uuid.UUID, change: MemberChange) -> None:
        scope = {"tenant_id": self._tenant.id, "id": group_id}
        user_ids = {_parse_member(member) for member in change.added}
        added = {**scope, "user_ids": list(user_ids)}
        row = connection.execute(statement("count_users"), added).fetchone()
        if row is None or row[0] != len(user_ids):
            raise InvalidValueException(detail="a member is no user of this tenant; create its user first")
        if change.replaces:
            connection.execute(statement("delete_other_members"), added)
        elif change.removed:
            removed = [user_id for user_id in map(_read_uuid, change.removed) if user_id is not None]
            connection.execute(statement("delete_members"), {**scope, "user_ids": removed})
        connection.execute(statement("insert_members"), added)

    def _scope(self, model: type[Any]) -> dict[str, Any]:
        return {"tenant_id": self._tenant.id, "kind": "Group" if issubclass(model, Group) else "User"}

    def _columns(self, resource: User[Any] | Group) -> dict[str, Any]:
        is_group = isinstance(resource, Group)
        name = resource.display_name if isinstance(resource, Group) else resource.user_name
        _check_name(name)
        _check_name(resource.external_id or "-")
        content = resource.model_dump(scim_ctx=Context.DEFAULT)
        for key in ("id", "meta", "password", "members" if is_group else "groups"):
            content.pop(key, None)
        check_texts(content)  # of filters in paths too, whose values a change may write
        return {
            **self._scope(type(resource)),
            "name": name,
            "name_key": fold_name(str(name)),
            "external_id": resource.external_id,
            "active": isinstance(resource, Group) or resource.active is not False,
            "content": Jsonb(content),
            "now": datetime.now(UTC),
        }


def replace_members(group: Group) -> MemberChange:
    """Return the change to the members that a group has, and no others."""
    return MemberChange(replaces=True, added=[str(member.value) for member in group.members or ()])


def _select_page(resources: Iterator[Resource], start: int, count: int) -> ResourcePage[Resource]:
    """Return a page of resources, and count all of them."""
    page, total = [], 0
    for total, resource in enumerate(resources, start=1):
        if start <= total < start + count:
            page.append(resource)
    return ResourcePage(total=total, start=start, resources=page)


@contextmanager
def _refuse_conflicts(name: str) -> Iterator[None]:
    """Refuse a name that another resource has, and a member that another request deletes now."""
    try:
        yield
    except psycopg.errors.UniqueViolation:
        raise UniquenessException(detail=f"{name} exists already") from None
    except psycopg.errors.ForeignKeyViolation:
        raise InvalidValueException(
            detail="a member is no user of this tenant any more; read the group again"
        ) from None


def _check_version(resource: User[Any] | Group, etag: str | None) -> None:
    allowed = None if etag is None else {version.strip() for version in etag.split(",")}
    if allowed is not None and "*" not in allowed and (resource.meta and resource.meta.version) not in allowed:
        raise PreconditionFailedException(detail="the resource has another version; read it again")


def _with_active(resource: Resource, *, default: bool) -> Resource:
    """Return a resource; a user without `active` has the default."""
    if isinstance(resource, User) and resource.active is None:
        resource.active = default
    return resource


def _check_name(name: str | None) -> None:
    if not name or not is_text(name) or not name.isprintable() or len(name) > _MAX_NAME:
        raise InvalidValueException(detail=f"{str(name)[:60]!r} is no name; use 1 to {_MAX_NAME} printable characters")


def _index_values(condition: Any) -> dict[str, str]:
    """Return what finds the resources of a filter by an index; empty for other filters."""
    node = None if condition is None else condition.ast
    if not isinstance(node, Comparison) or node.op is not CompareOperator.eq or not isinstance(node.value, str):
        return {}
    attribute = str(node.attr_path).casefold().rpartition(":")[2]
    if attribute == ("displayname" if condition.model is Group else "username"):
        return {"name_key": fold_name(node.value)}
    return {"external_id": node.value} if attribute == "externalid" else {}


def _parse_id(text: str) -> uuid.UUID:
    if (resource_id := _read_uuid(text)) is None:
        raise _not_found(text)
    return resource_id


def _parse_member(text: str) -> uuid.UUID:
    if (user_id := _read_uuid(text)) is None:
        raise InvalidValueException(detail=f"member {text[:60]!r} is no id of a user")
    return user_id


def _read_uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _not_found(resource_id: str) -> NotFoundException:
    return NotFoundException(detail=f"there is no resource {resource_id[:60]!r}")
