"""A Confluence for tests, in Atlassian's cloud or as Data Center."""

import re
from dataclasses import dataclass, field
from typing import Any

from tests.unit.ingestion.sources.atlassian_site import NotFound, Parameters, Refused, Site

_CQL = re.compile(
    r'space = "(?P<space>[^"]+)" and type in \((?P<types>[a-z, ]+)\)'
    r'(?: and lastmodified >= now\("-(?P<minutes>[0-9]+)m"\))?'
    r"|id = (?P<id>[0-9]+)|container = (?P<container>[0-9]+) and type = comment"
)


@dataclass(kw_only=True)
class Content:
    """A page, a blog post, a folder, a comment or an attachment."""

    id: str
    type: str = "page"
    title: str = ""
    body: str = ""
    space: str = "ENG"
    parent: str = ""
    """Id of what it is below, or attached to."""
    users: set[str] = field(default_factory=set)
    """Who may read it alone; empty with `groups`: no restriction."""
    groups: set[str] = field(default_factory=set)
    version: int = 1
    modified: float = 0.0
    status: str = "current"
    data: bytes = b""


@dataclass(kw_only=True)
class Space:
    """A space, and who may view it."""

    id: str
    users: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=lambda: {"staff"})
    anonymous: bool = False
    roles: dict[str, set[str]] = field(default_factory=dict)
    """Groups by role of the cloud."""
    type: str = "global"


@dataclass(kw_only=True)
class ConfluenceSite(Site):
    """The content of a Confluence."""

    spaces: dict[str, Space] = field(default_factory=lambda: {"ENG": Space(id="1")})
    content: dict[str, Content] = field(default_factory=dict)
    unindexed: set[str] = field(default_factory=set)
    """Content that its search does not find yet."""
    invisible: set[str] = field(default_factory=set)
    """Content that the account may not see."""

    others: int = 0
    """Results that its search counts, and does not show."""
    hidden_subjects: set[str] = field(default_factory=set)
    """Users and groups of restrictions that the account may not see."""
    counts_subjects: bool = True
    """Whether restrictions have the number of their subjects; else a link to hidden ones."""

    def __post_init__(self) -> None:
        self.base = "/wiki" if self.is_cloud else ""
        common = {
            "rest/api/user/current": "get_account",
            "rest/api/content/search": "search",
            "rest/api/search": "count",
            "rest/api/content/([^/]+)/restriction/byOperation/read": "get_restriction",
            "download/attachments/([^/]+)/([^/]+)": "download",
        }
        cloud = {
            "api/v2/spaces": "list_spaces",
            "api/v2/spaces/([0-9]+)": "get_space",
            "api/v2/spaces/([0-9]+)/pages": "list_pages",
            "api/v2/spaces/([0-9]+)/permissions": "list_permissions",
            "api/v2/spaces/([0-9]+)/role-assignments": "list_roles",
            "api/v2/space-roles/(.+)": "get_role",
            "api/v2/(pages|blogposts|folders|attachments)/([^/]+)": "get_content",
            "rest/api/user": "get_user",
            "rest/api/group/by-id": "get_group",
            "rest/api/group/([^/]+)/membersByGroupId": "list_members",
        }
        server = {
            "rest/api/space": "list_spaces",
            "rest/api/space/([^/]+)": "get_space",
            "rest/api/space/([^/]+)/permissions": "list_space_permissions",
            "rest/api/content/([^/]+)": "get_content_by_id",
            "rest/api/group/([^/]+)/member": "list_members",
        }
        self.routes = {**common, **(cloud if self.is_cloud else server)}

    def put(self, identifier: str, **values: Any) -> Content:
        """Create content, or change it as an edit does."""
        previous = self.content.get(identifier)
        content = previous or Content(id=identifier)
        for name, value in values.items():
            setattr(content, name, value)
        content.version += previous is not None
        content.modified = self.now()
        self.content[identifier] = content
        return content

    def find_visible(self, identifier: str) -> Content:
        content = self.content.get(identifier)
        if content is None or content.id in self.invisible or content.space not in self.spaces:
            raise NotFound
        return content

    def get_account(self, *, parameters: Parameters) -> Any:
        return self.user("robot")

    def list_spaces(self, *, parameters: Parameters) -> Any:
        keys = parameters.get("keys" if self.is_cloud else "spaceKey", ())
        results = [
            {"id": int(space.id), "key": key, "type": space.type}
            for key, space in self.spaces.items()
            if not keys or key in keys
        ]
        return self.page(results, parameters, "/api/v2/spaces" if self.is_cloud else "/rest/api/space")

    def get_space(self, key: str, *, parameters: Parameters) -> Any:
        for name, space in self.spaces.items():
            if key in (name, space.id) and space.anonymous:
                return {"id": space.id, "key": name}
        raise NotFound

    def search(self, *, parameters: Parameters) -> Any:
        expand = parameters["expand"][0].split(",")
        results = [self.describe(content, expand) for content in self.find_content(parameters)]
        return self.page(results, parameters, "/rest/api/content/search")

    def count(self, *, parameters: Parameters) -> Any:
        contents = self.find_content(parameters)
        results = [{"title": content.title, "entityType": "content"} for content in contents]
        return {**self.page(results, parameters, "/rest/api/search"), "totalSize": len(results) + self.others}

    def find_content(self, parameters: Parameters) -> list[Content]:
        match = _CQL.fullmatch(parameters["cql"][0])
        if match is None:
            raise Refused(400)
        return [
            content
            for content in sorted(self.content.values(), key=lambda content: int(content.id.removeprefix("att")))
            if content.status == "current" and content.type != "folder" and content.id not in self.unindexed
            and content.id not in self.invisible and content.space in self.spaces and self.matches(content, match)
        ]  # fmt: skip

    def matches(self, content: Content, match: re.Match[str]) -> bool:
        if match["id"]:
            return content.id == match["id"]
        if match["container"]:
            return content.type == "comment" and content.parent == match["container"]
        minutes = match["minutes"]
        is_recent = minutes is None or content.modified >= self.now() - 60 * int(minutes)
        return content.space == match["space"] and content.type in match["types"].split(", ") and is_recent

    def describe(self, content: Content, expand: list[str]) -> dict[str, Any]:
        described: dict[str, Any] = {
            "id": content.id, "type": content.type, "title": content.title, "status": content.status,
            "_links": {"webui": f"/spaces/{content.space}/pages/{content.id}"},
        }  # fmt: skip
        if content.type == "attachment":
            described["extensions"] = {"mediaType": "text/plain", "fileSize": len(content.data)}
            described["_links"]["download"] = f"/download/attachments/{content.parent}/{content.title}?version=1"
        if "space" in expand:
            space = self.spaces[content.space]
            described["space"] = {"id": int(space.id), "key": content.space, "type": space.type}
        if "version" in expand:
            when = f"2026-11-26T10:00:{content.version - 1:02}.000Z"
            described["version"] = {"number": content.version, "when": when, "by": {"displayName": "Ann <b>"}}
        if "container" in expand and content.type in ("comment", "attachment"):
            described["container"] = {"id": content.parent, "type": "page"}
        if "body.storage" in expand:
            described["body"] = {"storage": {"value": content.body}}
        if "ancestors" in expand:
            above = self.list_ancestors(content)
            described["ancestors"] = [{"id": ancestor.id} for ancestor in reversed(above) if ancestor.type != "folder"]
        if any(name.startswith("restrictions.read") for name in expand):
            described["restrictions"] = {"read": self.describe_restriction(content)}
        return described

    def list_ancestors(self, content: Content) -> list[Content]:
        above: list[Content] = []
        while content.parent and content.type in ("page", "folder"):
            content = self.content[content.parent]
            above.append(content)
        return above

    def describe_restriction(self, content: Content, start: int = 0) -> dict[str, Any]:
        users = [self.user(name) for name in sorted(content.users)]
        groups = [self.group(name) for name in sorted(content.groups)]
        limit = self.max_results
        listed: dict[str, dict[str, Any]] = {}
        for kind, subjects in (("user", users), ("group", groups)):
            page = subjects[start : start + limit]
            results = [subject for subject in page if subject.get("displayName") not in self.hidden_subjects]
            listed[kind] = {"results": results, "start": start, "limit": limit}
            if self.counts_subjects:
                listed[kind]["size"] = len(page)
            elif len(results) < len(page):
                listed[kind]["_links"] = {"next": "/rest/api/content"}
        return {"operation": "read", "restrictions": listed}

    def get_restriction(self, identifier: str, *, parameters: Parameters) -> Any:
        content = self.find_visible(identifier)
        return self.describe_restriction(content, int(parameters.get("start", ["0"])[0]))

    def get_content_by_id(self, identifier: str, *, parameters: Parameters) -> Any:
        content = self.find_visible(identifier)
        if content.status != "current":
            raise NotFound
        return self.describe(content, parameters.get("expand", [""])[0].split(","))

    def get_content(self, kind: str, identifier: str, *, parameters: Parameters) -> Any:
        content = self.find_visible(identifier)
        if content.type != kind.removesuffix("s"):
            raise NotFound
        described = {
            "id": content.id, "title": content.title, "status": content.status,
            "spaceId": self.spaces[content.space].id,
        }  # fmt: skip
        if content.type == "attachment":
            return {**described, "pageId": content.parent}
        return {**described, **self.describe_parent(content)}

    def describe_parent(self, content: Content) -> dict[str, Any]:
        parent = self.content.get(content.parent)
        return {"parentId": content.parent or None, "parentType": parent.type if parent else None}

    def list_pages(self, space_id: str, *, parameters: Parameters) -> Any:
        results = [
            {"id": content.id, "title": content.title, **self.describe_parent(content)}
            for content in self.content.values()
            if content.type == "page" and content.status == "current" and self.spaces[content.space].id == space_id
            and content.id not in self.invisible
        ]  # fmt: skip
        return self.page(results, parameters, f"/api/v2/spaces/{space_id}/pages")

    def list_permissions(self, space_id: str, *, parameters: Parameters) -> Any:
        space = next(space for space in self.spaces.values() if space.id == space_id)
        read = {"key": "read", "targetType": "space"}
        principals = [("user", f"5b10:{name}") for name in sorted(space.users)]
        principals += [("group", f"id-{name}") for name in sorted(space.groups)]
        results = [{"principal": {"type": kind, "id": key}, "operation": read} for kind, key in principals]
        other = {
            "principal": {"type": "group", "id": "id-guests"},
            "operation": {"key": "delete", "targetType": "page"},
        }
        return self.page([*results, other], parameters, f"/api/v2/spaces/{space_id}/permissions")

    def list_roles(self, space_id: str, *, parameters: Parameters) -> Any:
        space = next(space for space in self.spaces.values() if space.id == space_id)
        principals = [
            ({"principalType": "GROUP", "principalId": f"id-{name}"}, role)
            for role, names in space.roles.items()
            for name in names
        ]
        if space.anonymous:
            principals.append(({"principalType": "ACCESS_CLASS", "principalId": "anonymous-users"}, "viewer"))
        results = [{"principal": principal, "roleId": role} for principal, role in principals]
        return self.page(results, parameters, f"/api/v2/spaces/{space_id}/role-assignments")

    def get_role(self, role: str, *, parameters: Parameters) -> Any:
        return {"id": role, "spacePermissions": ["read/space"] if role == "viewer" else ["create/page"]}

    def list_space_permissions(self, key: str, *, parameters: Parameters) -> Any:
        space = self.spaces.get(key)
        if space is None:
            raise NotFound
        subjects = [*map(self.user, sorted(space.users)), *map(self.group, sorted(space.groups))]
        subjects += [{"type": "anonymous", "displayName": "Anonymous"}] if space.anonymous else []
        read, delete = {"targetType": "space", "operationKey": "read"}, {"targetType": "page", "operationKey": "delete"}
        return [
            *({"operation": read, "subject": subject, "spaceKey": key} for subject in subjects),
            {"operation": delete, "subject": self.group("guests"), "spaceKey": key},
        ]

    def get_user(self, *, parameters: Parameters) -> Any:
        return self.user(parameters["accountId"][0].partition(":")[2])

    def get_group(self, *, parameters: Parameters) -> Any:
        name = parameters["id"][0].removeprefix("id-")
        if name not in self.groups:
            raise NotFound
        return self.group(name)

    def list_members(self, key: str, *, parameters: Parameters) -> Any:
        name = key.removeprefix("id-") if self.is_cloud else key
        if name not in self.groups:
            raise NotFound
        suffix = "membersByGroupId" if self.is_cloud else "member"
        results = [self.user(member) for member in sorted(self.groups[name])]
        return self.page(results, parameters, f"/rest/api/group/{key}/{suffix}")

    def download(self, page: str, title: str, *, parameters: Parameters) -> bytes:
        for content in self.content.values():
            if (content.type, content.parent, content.title) == ("attachment", page, title):
                return content.data
        raise NotFound

    def page(self, results: list[dict[str, Any]], parameters: Parameters, path: str) -> dict[str, Any]:
        """Return a page of results with the link to the next one."""
        name = "cursor" if self.is_cloud else "start"
        start = int(parameters.get(name, ["0"])[0].removeprefix("from-"))
        limit = min(int(parameters["limit"][0]), self.max_results)
        links = {"base": self.url}
        if start + limit < len(results):
            following = f"from-{start + limit}" if self.is_cloud else str(start + limit)
            links["next"] = f"https://elsewhere.example.org{path}?{name}={following}&limit={limit}"
        selected = results[start : start + limit]
        return {"results": selected, "start": start, "limit": limit, "size": len(selected), "_links": links}
