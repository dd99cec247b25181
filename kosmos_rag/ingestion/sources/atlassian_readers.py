"""Readers of Confluence and Jira, as principals."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import EVERYONE, is_text
from kosmos_rag.ingestion.sources.atlassian import AtlassianSite, is_hidden


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A user or a group of the site."""

    kind: str
    """`user`, `group`, or `all` for everybody on the web."""
    key: str
    """Id in the cloud, else the name."""
    principal: str | None = field(compare=False)
    """None if the site does not show what names the principal: such a user is no reader."""


ANYONE = Subject(kind="all", key="", principal=EVERYONE)
Readers = frozenset[Subject]
"""One condition: who is one of them, or a member of one of them, may read."""


def read_users(users: Iterable[Mapping[str, Any]], *, is_cloud: bool) -> Iterator[Subject]:
    """Yield users of the REST API.

    The cloud names a person by an e-mail address, if it shows one, and Data Center by the name of the user.
    """
    for user in users:
        name = user.get("email") or user.get("emailAddress") if is_cloud else user.get("username") or user.get("name")
        if key := user.get("accountId") if is_cloud else name:
            yield Subject(kind="user", key=key, principal=_name_principal("user", str(name or "").lower()))


def read_groups(groups: Iterable[Mapping[str, Any]], *, is_cloud: bool) -> Iterator[Subject]:
    """Yield groups of the REST API."""
    for group in groups:
        name = str(group.get("name") or "")
        if key := group.get("id") or group.get("groupId") if is_cloud else name:
            yield Subject(kind="group", key=key, principal=_name_principal("group", name))


def read_principals(principals: Iterable[str]) -> Iterator[Subject]:
    """Yield principals that a spec names."""
    for principal in principals:
        yield Subject(kind="principal", key=principal, principal=principal)


def _name_principal(kind: str, name: str) -> str | None:
    return f"{kind}:{name}" if name.strip() and is_text(name) else None


def intersect(conditions: Iterable[Readers], list_members: Callable[[Subject], Collection[Subject]]) -> frozenset[str]:
    """Return the principals of those who meet all conditions.

    A group that each condition names stays a group. Where the conditions name different groups, an acl cannot express
    that a reader is in both: then it names the users who are.

    Args:
        conditions: readers by space and by each restriction; without any there is nobody.
        list_members: returns the users of a group; it is called only where conditions differ.
    """
    distinct = set(conditions)
    if not distinct:
        return frozenset()
    bounded = {readers for readers in distinct if ANYONE not in readers}
    # A condition that another one implies adds nothing.
    needed = [readers for readers in bounded if not any(other < readers for other in bounded)]
    if not needed:
        return frozenset([EVERYONE])
    common = _intersect(needed)
    allowed = set(common)
    rests = [readers - common for readers in needed]
    expanded = [_expand(rest, list_members) for rest in rests] if len(rests) > 1 and all(rests) else []
    if expanded:
        allowed |= _intersect(expanded)
    # Not every answer of the site shows the address of a user.
    names = {subject: subject.principal for readers in (*needed, *expanded) for subject in readers if subject.principal}
    return frozenset(names[subject] for subject in allowed if subject in names)


def narrow(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """Return the principals that might read before, and may after."""
    if EVERYONE in after:
        return before
    return after if EVERYONE in before else tuple(principal for principal in after if principal in before)


class SiteReaders(ABC):
    """Who may read the documents of one site, as it says now.

    What it has asked for it asks for once: use it for one pass, or for one document.
    """

    def __init__(self, site: AtlassianSite, *, signed_in: Collection[str]) -> None:
        """Take the site, and the principals of all who can sign in there."""
        self._client, self._is_cloud = site.client, site.is_cloud
        self._signed_in = frozenset(read_principals(signed_in))
        self._members: dict[Subject, frozenset[Subject]] = {}

    def _list_anonymous(self, path: str) -> Iterator[Subject]:
        """Yield who may read what anonymous users may.

        Those who can sign in, and everybody where the site is open.
        """
        yield from self._signed_in
        if self._client.is_public(path):
            yield ANYONE

    def _list_members(self, group: Subject) -> frozenset[Subject]:
        """Return the users of a group; nobody where the account may not ask. Raises SourceError."""
        if group not in self._members:
            try:
                members = list(self._ask_members(group))
            except SourceError as error:
                if not is_hidden(error):
                    raise
                members = []
            self._members[group] = frozenset(read_users(members, is_cloud=self._is_cloud))
        return self._members[group]

    @abstractmethod
    def _ask_members(self, group: Subject) -> Iterator[Mapping[str, Any]]:
        """Yield the users of a group. Raises SourceError."""


def _intersect(conditions: Sequence[Readers]) -> Readers:
    return conditions[0].intersection(*conditions[1:])


def _expand(readers: Readers, list_members: Callable[[Subject], Collection[Subject]]) -> Readers:
    users = frozenset(subject for subject in readers if subject.kind == "user")
    return users.union(*(list_members(subject) for subject in readers if subject.kind == "group"))
