"""Readers of the pages of a Confluence: permissions of spaces, restrictions of pages."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.atlassian import AtlassianSite, FormError, is_hidden, translate_form_errors
from kosmos_rag.ingestion.sources.atlassian_readers import (
    Readers,
    SiteReaders,
    Subject,
    intersect,
    read_groups,
    read_users,
)
from kosmos_rag.ingestion.sources.spec import ConfluenceAccess, ConfluencePermissions

PAGE = 200
"""Results of one page of a listing, where a body is not asked for."""
RESTRICTIONS = "restrictions.read.restrictions.user,restrictions.read.restrictions.group"
_PARENTS = {
    "page": "pages", "folder": "folders", "whiteboard": "whiteboards", "database": "databases", "embed": "embeds",
}  # fmt: skip
"""Paths of the cloud's second API by kind of content that has pages below it."""
_DEEPEST = 100
_SEPARATOR = re.compile(r"[^a-z]+")


class Confluence(AtlassianSite):
    """A Confluence, as a source and its permission feed read it. Thread-safe."""

    kind = "confluence"

    def __init__(self, access: ConfluenceAccess, settings: IngestionSettings) -> None:
        """Prepare requests; nothing is sent yet. Raises ConfigError."""
        super().__init__(access, settings)
        self._keys = access.spaces

    def list_spaces(self) -> dict[str, str]:
        """Return the ids of the current spaces of the spec, by key. Raises SourceError.

        A named space that the account does not see is missing.
        """
        self.require_account()
        path = "api/v2/spaces" if self.is_cloud else "rest/api/space"
        name = "keys" if self.is_cloud else "spaceKey"
        # One key a request: the deployments write lists in different ways.
        queries: list[dict[str, str]] = [{name: key} for key in self._keys] or [{}]
        answer = [
            space for query in queries for space in self.client.list_linked(path, status="current", limit=PAGE, **query)
        ]
        return {space["key"]: str(space["id"]) for space in answer if self.is_read(space)}

    def is_read(self, space: Mapping[str, Any]) -> bool:
        """Return whether the spec has a space."""
        return space["key"] in self._keys if self._keys else space.get("type") != "personal"

    def require_account(self) -> None:
        """Raise SourceError unless the site answers, and knows the account: others see public spaces only."""
        if self.client.get("rest/api/user/current").get("type") != "known":
            raise self.client.refused_error()

    def search(self, cql: str, expand: str) -> Iterator[dict[str, Any]]:
        """Yield the current content that a query of CQL finds. Raises SourceError."""
        return self.client.list_linked("rest/api/content/search", cql=cql, expand=expand, limit=PAGE)

    def list_content(self, space: str, types: str, expand: str) -> Iterator[dict[str, Any]]:
        """Yield the current content of a space. Raises SourceError.

        Args:
            space: its key.
            types: of the content, with commas between.
            expand: what of the content is answered.
        """
        return self.search(f'space = "{space}" and type in ({types})', expand)


class PageAt(NamedTuple):
    """Where a page is."""

    id: str
    kind: str
    space: str
    """Key."""
    ancestors: tuple[str, ...]
    """Ids of the pages above it; the cloud leaves out folders."""
    updated: str
    """When its text changed last; empty where it was not asked for."""

    @classmethod
    def read(cls, page: Mapping[str, Any]) -> Self:
        """Read a page that was listed with its ancestors."""
        ancestors = tuple(str(ancestor["id"]) for ancestor in page["ancestors"])
        updated = (page.get("version") or {}).get("when", "")
        return cls(str(page["id"]), page["type"], page["space"]["key"], ancestors, updated)


class ConfluenceReaders(SiteReaders):
    """Who may read the pages of one Confluence, as it says now."""

    def __init__(self, confluence: Confluence, *, signed_in: Collection[str]) -> None:
        """Take the Confluence, and the principals of all who can sign in there."""
        super().__init__(confluence, signed_in=signed_in)
        self._restrictions: dict[str, Readers | None] = {}
        self._parents: dict[str, tuple[str, str]] = {}

    def add(self, page: Mapping[str, Any]) -> None:
        """Take the restrictions of a page that was listed with them. Raises SourceError."""
        identifier = str(page["id"])
        self._restrictions[identifier] = self._read_restrictions(identifier, page["restrictions"]["read"])

    def add_parents(self, space_id: str) -> None:
        """Ask for the parents of all pages of a space, in the cloud. Raises SourceError."""
        for page in self._client.list_linked(f"api/v2/spaces/{space_id}/pages", limit=PAGE):
            self._parents[page["id"]] = _read_parent(page)

    def find_conditions(self, page: PageAt) -> list[Readers] | None:
        """Return the restrictions of a page, and of all that is above it. Raises SourceError.

        The result is None if one of them is not known: then nobody may read the page.
        """
        conditions = []
        for identifier in (page.id, *self._find_ancestors(page)):
            if identifier is None:
                return None
            if identifier not in self._restrictions:
                path = f"rest/api/content/{identifier}/restriction/byOperation/read"
                answer = self._client.find_shown(path, expand="restrictions.user,restrictions.group", limit=PAGE)
                if answer is None:
                    return None
                self._restrictions[identifier] = self._read_restrictions(identifier, answer)
            if (readers := self._restrictions[identifier]) is not None:
                conditions.append(readers)
        return conditions

    def find_space(self, key: str, space_id: str) -> Readers:
        """Return who may view a space; nobody if the account may not ask. Raises SourceError."""
        try:
            return frozenset(self._list_viewers(key, space_id))
        except SourceError as error:
            if not is_hidden(error):
                raise
            return frozenset()

    def resolve(self, conditions: Collection[Readers]) -> frozenset[str]:
        """Return the principals of those who meet all conditions. Raises SourceError."""
        return intersect(conditions, self._list_members)

    def _find_ancestors(self, page: PageAt) -> Iterator[str | None]:
        if not self._is_cloud:
            yield from page.ancestors
            return
        if page.kind == "blogpost":
            return
        # The first API of the cloud leaves out folders, which have restrictions too.
        identifier, kind = page.id, page.kind
        for _ in range(_DEEPEST):
            if identifier not in self._parents:
                answer = self._client.find_shown(f"api/v2/{_PARENTS[kind]}/{identifier}") if kind in _PARENTS else None
                if answer is None:
                    yield None
                    return
                self._parents[identifier] = _read_parent(answer)
            identifier, kind = self._parents[identifier]
            if not identifier:
                return
            yield identifier
        yield None

    def _read_restrictions(self, identifier: str, operation: Mapping[str, Any]) -> Readers | None:
        """Return who may read by the restrictions of one page; None if it has none."""
        subjects: set[Subject] = set()
        is_restricted = False
        for kind, read in (("user", read_users), ("group", read_groups)):
            listed = operation["restrictions"][kind]
            results = listed["results"]
            # Of subjects that the account may not see, the site names only the number.
            is_restricted |= bool(results or listed.get("size") or (listed.get("_links") or {}).get("next"))
            path = f"rest/api/content/{identifier}/restriction/byOperation/read"
            while results:
                subjects.update(read(results, is_cloud=self._is_cloud))
                if len(results) < listed.get("limit", PAGE):
                    break
                start = listed.get("start", 0) + len(results)
                more = self._client.get(path, expand=f"restrictions.{kind}", start=start, limit=PAGE)
                listed = more["restrictions"][kind]
                results = listed["results"]
        return frozenset(subjects) if is_restricted else None

    def _list_viewers(self, key: str, space_id: str) -> Iterator[Subject]:
        if not self._is_cloud:
            for entry in self._client.get(f"rest/api/space/{quote(key, safe='~')}/permissions"):
                operation, subject = entry["operation"], entry.get("subject") or {}
                if (operation.get("operationKey"), operation.get("targetType")) == ("read", "space"):
                    yield from self._read_subject(subject, f"rest/api/space/{quote(key, safe='~')}")
            return
        for entry in self._client.list_linked(f"api/v2/spaces/{space_id}/permissions", limit=PAGE):
            principal, operation = entry["principal"], entry["operation"]
            if (operation["key"], operation["targetType"]) == ("read", "space"):
                yield from self._find_principal(principal["type"], principal["id"], f"api/v2/spaces/{space_id}")
        yield from self._list_assigned(space_id)

    def _list_assigned(self, space_id: str) -> Iterator[Subject]:
        """Yield who has a role that may read a space; sites without roles have none."""
        try:
            assigned = list(self._client.list_linked(f"api/v2/spaces/{space_id}/role-assignments", limit=PAGE))
        except SourceError as error:
            if not (is_hidden(error) or isinstance(error, FormError) or error.code == "unreadable"):
                raise
            return
        identifiers = dict.fromkeys(entry["roleId"] for entry in assigned)
        roles = {role: self._client.find_shown(f"api/v2/space-roles/{role}") for role in identifiers}
        reading = {identifier for identifier, role in roles.items() if role and _may_read(role["spacePermissions"])}
        for entry in assigned:
            if entry["roleId"] in reading:
                principal = entry["principal"]
                kind, identifier = principal["principalType"].lower(), principal["principalId"]
                yield from self._find_principal(kind, identifier, f"api/v2/spaces/{space_id}")

    def _read_subject(self, subject: Mapping[str, Any], path: str) -> Iterator[Subject]:
        kind = subject.get("type")
        if kind == "anonymous":
            yield from self._list_anonymous(path)
        elif kind == "group":
            yield from read_groups([subject], is_cloud=False)
        elif kind in ("known", "user"):
            yield from read_users([subject], is_cloud=False)

    def _find_principal(self, kind: str, identifier: str, path: str) -> Iterator[Subject]:
        """Yield the subject of an id of the cloud, with its name."""
        if kind == "user":
            user = self._client.find_name("rest/api/user", accountId=identifier)
            yield from read_users([user] if user else [], is_cloud=True)
        elif kind == "group":
            group = self._client.find_name("rest/api/group/by-id", id=identifier)
            yield from read_groups([group] if group else [], is_cloud=True)
        elif identifier == "anonymous-users":
            yield from self._list_anonymous(path)
        elif identifier in ("authenticated-users", "all-licensed-users"):
            yield from self._signed_in

    def _ask_members(self, group: Subject) -> Iterator[Mapping[str, Any]]:
        path = f"rest/api/group/{quote(group.key, safe='')}/{'membersByGroupId' if self._is_cloud else 'member'}"
        return self._client.list_linked(path, limit=PAGE)


class PageReaders(NamedTuple):
    """Who may read a document."""

    name: str
    principals: frozenset[str]
    updated: str
    """When its text changed last: a text that is stored from before gets no new readers."""


def list_readers(spec: ConfluencePermissions, settings: IngestionSettings) -> Iterator[PageReaders]:
    """Yield the readers of each page, blog post and attachment.

    The permissions of a space are read after its pages, so a space that becomes private meanwhile is private here.

    Raises:
        ConfigError: the variable of the token is not set.
        SourceError: the site cannot be read completely.
    """
    confluence = Confluence(spec, settings)
    readers = ConfluenceReaders(confluence, signed_in=spec.signed_in)
    with translate_form_errors(spec.url):
        spaces = confluence.list_spaces()
        pages: dict[str, tuple[PageAt, list[Readers] | None]] = {}
        names: list[tuple[str, str, str]] = []
        for key, space_id in spaces.items():
            pages.update(
                (at.id, (at, conditions)) for at, conditions in _list_pages(confluence, readers, key, space_id)
            )
            names += (
                (
                    str(attachment["container"]["id"]),
                    name_attachment(confluence.prefix, attachment),
                    attachment["version"]["when"],
                )
                for attachment in confluence.list_content(key, "attachment", "container,version")
            )
        viewers = {key: readers.find_space(key, space_id) for key, space_id in spaces.items()}
        principals = {
            identifier: readers.resolve([viewers[at.space], *conditions])
            for identifier, (at, conditions) in pages.items()
            if at.space in viewers and conditions is not None
        }
    names += ((at.id, f"{confluence.prefix}{at.id}", at.updated) for at, _ in pages.values())
    for identifier, name, updated in names:
        yield PageReaders(name, principals.get(identifier, frozenset()), updated)


def _list_pages(
    confluence: Confluence, readers: ConfluenceReaders, key: str, space_id: str
) -> Iterator[tuple[PageAt, list[Readers] | None]]:
    """Yield where each page of a space is by now, and its conditions."""
    if confluence.is_cloud:
        readers.add_parents(space_id)
    listed = []
    for page in confluence.list_content(key, "page, blogpost", f"space,ancestors,version,{RESTRICTIONS}"):
        readers.add(page)
        # The rest of it is most of it.
        listed.append(PageAt.read(page))
    for at in listed:
        yield at, readers.find_conditions(at)


def name_attachment(prefix: str, attachment: Mapping[str, Any]) -> str:
    """Return the name of the document of an attachment."""
    return f"{prefix}{attachment['container']['id']}/{attachment['id']}/{attachment['title']}"


def _may_read(permissions: Iterable[str]) -> bool:
    """Return whether a role permits to read the space, by the ids of its permissions."""
    return any(set(_SEPARATOR.split(permission.lower())) == {"read", "space"} for permission in permissions)


def _read_parent(content: Mapping[str, Any]) -> tuple[str, str]:
    """Return id and kind of the parent; empty for content at the top of a space."""
    parent = content.get("parentId")
    return (str(parent), content.get("parentType") or "page") if parent else ("", "")
