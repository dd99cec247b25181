"""Readers of the issues of a Jira: who may browse a project, and issue security levels."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, Self

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.atlassian import AtlassianSite, is_hidden, require_list, translate_form_errors
from kosmos_rag.ingestion.sources.atlassian_readers import (
    Readers,
    SiteReaders,
    Subject,
    intersect,
    read_groups,
    read_users,
)
from kosmos_rag.ingestion.sources.spec import JiraAccess, JiraPermissions

_BULK_FETCH = "rest/api/3/issue/bulkfetch"
PAGE = 100
"""Results of one page of a listing."""
READER_FIELDS = "project,security,issuerestriction,reporter,assignee"
"""Fields of an issue that decide who may read it."""
_OF_ISSUE = ("reporter", "assignee")
"""Holders of a permission that are a field of the issue."""


class Jira(AtlassianSite):
    """A Jira, as a source and its permission feed read it. Thread-safe."""

    kind = "jira"

    def __init__(self, access: JiraAccess, settings: IngestionSettings) -> None:
        """Prepare requests; nothing is sent yet. Raises ConfigError."""
        super().__init__(access, settings)
        self._keys = access.projects

    def list_projects(self) -> dict[str, str]:
        """Return the ids of the projects of the spec, by key. Raises SourceError.

        A project that the account does not see is missing.
        """
        self.require_account()
        answer = {key: self.client.find(f"rest/api/2/project/{key}") for key in self._keys}
        return {key: str(project["id"]) for key, project in answer.items() if project is not None}

    def require_account(self) -> None:
        """Raise SourceError unless the site answers, and knows the account."""
        if not self.client.get("rest/api/2/myself"):
            raise self.client.refused_error()

    def search(self, jql: str, fields: str) -> Iterator[dict[str, Any]]:
        """Yield the issues that a query of JQL finds. Raises SourceError."""
        if not self.is_cloud:
            yield from self.client.list_counted("rest/api/2/search", "issues", jql=jql, fields=fields, maxResults=PAGE)
            return
        yield from self.client.list_by_token("rest/api/2/search/jql", "issues", jql=jql, fields=fields, maxResults=PAGE)

    def list_issues(self, project: str, fields: str) -> Iterator[dict[str, Any]]:
        """Yield the issues of a project as they are now. Raises SourceError.

        The search index of the cloud may be behind: there it only names the issues of a project.
        """
        jql = f'project = "{project}" order by key'
        if not self.is_cloud:
            yield from self.search(jql, fields)
            return
        identifiers = (str(issue["id"]) for issue in self.search(jql, "project"))
        while batch := list(islice(identifiers, PAGE)):
            answer = self.client.query(_BULK_FETCH, {"issueIdsOrKeys": batch, "fields": fields.split(",")})
            if answer.get("issueErrors"):
                raise SourceError("unavailable", f"Jira cannot show some of {len(batch)} issues now; try again later")
            yield from require_list(answer, "issues", _BULK_FETCH)


class IssueAt(NamedTuple):
    """What decides who may read an issue."""

    id: str
    project: str
    """Key."""
    level: str | None
    """Id of its security level."""
    is_restricted: bool
    """Whether only roles of a team-managed project see it."""
    people: Mapping[str, Readers]
    """The users of fields that a permission may name."""

    @classmethod
    def read(cls, issue: Mapping[str, Any], *, is_cloud: bool) -> Self:
        """Read an issue that was listed with `READER_FIELDS`."""
        fields = issue["fields"]
        security = fields.get("security")
        return cls(
            id=str(issue["id"]),
            project=fields["project"]["key"],
            level=str(security["id"]) if security else None,
            is_restricted=_is_restricted(fields.get("issuerestriction")),
            people={
                name: frozenset(read_users([fields[name]] if fields.get(name) else [], is_cloud=is_cloud))
                for name in _OF_ISSUE
            },
        )


class _Holders(NamedTuple):
    """Who holds a permission, or is in a security level."""

    readers: Readers
    fields: frozenset[str]
    """Fields of an issue whose users hold it too."""

    def of_issue(self, issue: IssueAt) -> Readers:
        return self.readers.union(*(issue.people[name] for name in self.fields))


_NOBODY = _Holders(frozenset(), frozenset())


class JiraReaders(SiteReaders):
    """Who may read the issues of one Jira, as it says now."""

    def __init__(self, jira: Jira, *, signed_in: Collection[str]) -> None:
        """Take the Jira, and the principals of all who can sign in there."""
        super().__init__(jira, signed_in=signed_in)
        self._browsers: dict[str, _Holders] = {}
        self._levels: dict[str, dict[str, _Holders]] = {}

    def resolve(self, issue: IssueAt) -> frozenset[str]:
        """Return the principals that may read an issue. Raises SourceError.

        Who may browse the project, and is in the security level of the issue. Of a level whose members the account may
        not see, nobody is. An issue that a team-managed project restricts has no readers.
        """
        if issue.is_restricted:
            return frozenset()
        if issue.project not in self._browsers:
            self._browsers[issue.project] = self._find_browsers(issue.project)
        conditions = [self._browsers[issue.project].of_issue(issue)]
        if issue.level is not None:
            if issue.project not in self._levels:
                self._levels[issue.project] = self._find_levels(issue.project)
            level = self._levels[issue.project].get(issue.level, _NOBODY)
            conditions.append(level.of_issue(issue))
        return intersect(conditions, self._list_members)

    def _find_browsers(self, project: str) -> _Holders:
        scheme = self._client.find_shown(f"rest/api/2/project/{project}/permissionscheme", expand="all")
        granted = [] if scheme is None else scheme["permissions"]
        holders = [grant["holder"] for grant in granted if grant["permission"] == "BROWSE_PROJECTS"]
        return self._read_holders(project, holders)

    def _find_levels(self, project: str) -> dict[str, _Holders]:
        scheme = self._client.find_shown(f"rest/api/2/project/{project}/issuesecuritylevelscheme")
        if scheme is None:
            return {}
        path = f"rest/api/2/issuesecurityschemes/{scheme['id']}/members"
        try:
            members = list(self._client.list_counted(path, "values", maxResults=PAGE, expand="all"))
        except SourceError as error:
            if not is_hidden(error):
                raise
            members = []
        holders: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for member in members:
            holders[str(member["issueSecurityLevelId"])].append(member["holder"])
        return {level: self._read_holders(project, of_level) for level, of_level in holders.items()}

    def _read_holders(self, project: str, holders: Collection[Mapping[str, Any]]) -> _Holders:
        """Read the holders of a permission.

        Those that depend on other fields or on customers are nobody.
        """
        readers: set[Subject] = set()
        for holder in holders:
            readers.update(self._read_holder(project, holder))
        return _Holders(frozenset(readers), frozenset(holder["type"] for holder in holders) & frozenset(_OF_ISSUE))

    def _read_holder(self, project: str, holder: Mapping[str, Any]) -> Iterator[Subject]:
        kind, parameter = holder["type"], holder.get("parameter")
        if kind == "anyone":
            yield from self._list_anonymous(f"rest/api/2/project/{project}")
        elif kind == "applicationRole":
            yield from self._find_application_users(parameter)
        elif kind == "group":
            group = holder.get("group") or {"name": parameter, "groupId": holder.get("value")}
            yield from read_groups([group], is_cloud=self._is_cloud)
        elif kind == "user":
            yield from read_users([holder["user"]] if holder.get("user") else [], is_cloud=self._is_cloud)
        elif kind == "projectRole":
            yield from self._find_actors(project, parameter)
        elif kind == "projectLead":
            answer = self._client.get(f"rest/api/2/project/{project}")
            yield from self._find_users([answer["lead"]] if answer.get("lead") else [])

    def _find_application_users(self, application: str | None) -> Iterator[Subject]:
        if not application:
            yield from self._signed_in
        elif role := self._client.find_shown(f"rest/api/2/applicationrole/{application}"):
            groups = role.get("groupDetails") or [{"name": name} for name in role["groups"]]
            yield from read_groups(groups, is_cloud=self._is_cloud)

    def _find_actors(self, project: str, role: object) -> Iterator[Subject]:
        answer = self._client.find_shown(f"rest/api/2/project/{project}/role/{role}")
        for actor in answer["actors"] if answer else ():
            if actor["type"] == "atlassian-group-role-actor":
                yield from read_groups([actor.get("actorGroup") or actor], is_cloud=self._is_cloud)
            elif actor["type"] == "atlassian-user-role-actor":
                yield from self._find_users([actor.get("actorUser") or {}] if self._is_cloud else [actor])

    def _find_users(self, users: Collection[Mapping[str, Any]]) -> Iterator[Subject]:
        """Yield users with their addresses, which the cloud does not show everywhere."""
        for user in users:
            identifier = user.get("accountId")
            if self._is_cloud and identifier and not user.get("emailAddress"):
                user = self._client.find_name("rest/api/2/user", accountId=identifier) or user
            yield from read_users([user], is_cloud=self._is_cloud)

    def _ask_members(self, group: Subject) -> Iterator[Mapping[str, Any]]:
        name = {"groupId": group.key} if self._is_cloud else {"groupname": group.key}
        return self._client.list_counted("rest/api/2/group/member", "values", maxResults=50, **name)


def list_readers(spec: JiraPermissions, settings: IngestionSettings) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the name and the principals of each issue and attachment.

    The permissions are read after the issues, so a project that becomes private meanwhile is private here.

    Raises:
        ConfigError: the variable of the token is not set.
        SourceError: the site cannot be read completely.
    """
    jira = Jira(spec, settings)
    readers = JiraReaders(jira, signed_in=spec.signed_in)
    with translate_form_errors(spec.url):
        issues: dict[str, tuple[IssueAt, list[str]]] = {}
        for key in jira.list_projects():
            for issue in jira.list_issues(key, f"{READER_FIELDS},attachment"):
                names = [f"{jira.prefix}{issue['id']}", *name_attachments(jira.prefix, issue).values()]
                issues[issue["id"]] = IssueAt.read(issue, is_cloud=jira.is_cloud), names
        for at, names in issues.values():
            principals = readers.resolve(at) if at.project in spec.projects else frozenset[str]()
            for name in names:
                yield name, principals


def _is_restricted(restriction: Any) -> bool:
    """Return whether the field `issuerestriction` names anybody; a field of another form does."""
    listed = restriction.get("issuerestrictions") if isinstance(restriction, Mapping) else None
    return any(listed.values()) if isinstance(listed, Mapping) else bool(restriction)


def name_attachments(prefix: str, issue: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the documents of the attachments of an issue, by their ids."""
    files = issue["fields"].get("attachment") or ()
    return {str(file["id"]): f"{prefix}{issue['id']}/{file['id']}/{file['filename']}" for file in files}
