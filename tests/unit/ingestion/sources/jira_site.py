"""A Jira for tests, in Atlassian's cloud or as Data Center."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.unit.ingestion.sources.atlassian_site import NotFound, Parameters, Refused, Site

_JQL = re.compile(r'project = "(?P<project>[^"]+)"(?: and updated >= "-(?P<minutes>[0-9]+)m")? order by key')
Holder = dict[str, Any]


@dataclass(kw_only=True)
class Issue:
    """An issue."""

    id: str
    project: str = "ENG"
    summary: str = ""
    description: str = ""
    level: str | None = None
    restriction: dict[str, Any] | None = None
    reporter: str = "ann"
    assignee: str | None = None
    comments: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Name and content by id."""
    status: str | None = None
    labels: tuple[str, ...] = ()
    archived: bool = False
    updated: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.project}-{self.id}"


@dataclass(kw_only=True)
class JiraSite(Site):
    """The issues of a Jira."""

    projects: dict[str, list[Holder]] = field(default_factory=lambda: {"ENG": [{"type": "group", "name": "staff"}]})
    """Who may browse each project."""
    levels: dict[str, list[Holder]] = field(default_factory=dict)
    """Members of each security level."""
    roles: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    """Users and groups by role."""
    issues: dict[str, Issue] = field(default_factory=dict)
    unindexed: set[str] = field(default_factory=set)
    indexed: dict[str, Issue] = field(default_factory=dict)
    """Issues as the search still shows them, where it is behind."""
    project_type: str = "software"
    drops: int = 0
    """Results that a page has fewer than it should, at the end."""
    anonymous: set[str] = field(default_factory=set)
    """Projects that people without an account see, where the site lets them in."""

    def __post_init__(self) -> None:
        self.routes = {
            "rest/api/2/myself": "get_account",
            "rest/api/2/project/([A-Z]+)": "get_project",
            "rest/api/2/project/([A-Z]+)/permissionscheme": "get_scheme",
            "rest/api/2/project/([A-Z]+)/issuesecuritylevelscheme": "get_level_scheme",
            "rest/api/2/project/([A-Z]+)/role/(.+)": "get_role",
            "rest/api/2/applicationrole/(.+)": "get_application",
            "rest/api/2/issue/([0-9]+)": "get_issue",
            "rest/api/2/issue/([0-9]+)/comment": "list_comments",
            "rest/api/2/group/member": "list_members",
        }
        if self.is_cloud:
            self.routes |= {
                "rest/api/2/issuesecurityschemes/7/members": "list_level_members",
                "rest/api/2/search/jql": "search",
                "rest/api/3/issue/bulkfetch": "fetch_issues",
                "rest/api/2/user": "get_user",
                "rest/api/2/attachment/content/(.+)": "download",
            }
        else:
            self.routes |= {"rest/api/2/search": "search", "secure/attachment/([0-9]+)/.+": "download"}

    def put(self, identifier: str, **values: Any) -> Issue:
        """Create an issue, or change it."""
        issue = self.issues.get(identifier) or Issue(id=identifier)
        for name, value in values.items():
            setattr(issue, name, value)
        issue.updated = self.now()
        self.issues[identifier] = issue
        return issue

    def get_account(self, *, parameters: Parameters) -> Any:
        return self.user("robot")

    def get_project(self, key: str, *, parameters: Parameters) -> Any:
        if key not in self.projects:
            raise NotFound
        return {"id": str(100 + len(key)), "key": key, "lead": {**self.user("lead"), "emailAddress": ""}}

    def answer(self, path: str, parameters: Parameters, is_signed_in: bool) -> Any:
        return super().answer(path, parameters, is_signed_in or path.rpartition("/")[2] in self.anonymous)

    def get_scheme(self, key: str, *, parameters: Parameters) -> Any:
        if key not in self.projects:
            raise NotFound
        granted = [{"permission": "BROWSE_PROJECTS", "holder": self.holder(holder)} for holder in self.projects[key]]
        other = {"permission": "DELETE_ISSUES", "holder": self.holder({"type": "group", "name": "guests"})}
        return {"id": 1, "permissions": [*granted, other]}

    def holder(self, holder: Holder) -> dict[str, Any]:
        kind, name = holder["type"], holder.get("name")
        described: dict[str, Any] = {"type": kind}
        if kind == "group":
            described |= {"parameter": name, "group": self.group(str(name))}
        elif kind == "user":
            described |= {"parameter": name, "user": self.user(str(name))}
        elif name:
            described["parameter"] = name
        return described

    def get_level_scheme(self, key: str, *, parameters: Parameters) -> Any:
        if not self.levels:
            raise NotFound
        return {"id": 7, "levels": [{"id": level} for level in self.levels]}

    def list_level_members(self, *, parameters: Parameters) -> Any:
        members = [
            {"issueSecurityLevelId": int(level), "holder": self.holder(holder)}
            for level, holders in self.levels.items()
            for holder in holders
        ]
        return self.page(members, "values", parameters)

    def get_role(self, key: str, role: str, *, parameters: Parameters) -> Any:
        users, groups = self.roles[role]
        actors: list[dict[str, Any]] = [
            {"type": "atlassian-group-role-actor", "name": name, "actorGroup": self.group(name)} for name in groups
        ]
        for name in users:
            actor = {"actorUser": {"accountId": f"5b10:{name}"}} if self.is_cloud else {"name": name}
            actors.append({"type": "atlassian-user-role-actor", **actor})
        return {"id": role, "actors": actors}

    def get_application(self, name: str, *, parameters: Parameters) -> Any:
        return {"key": name, "groups": [f"{name}-users"], "groupDetails": [self.group(f"{name}-users")]}

    def get_user(self, *, parameters: Parameters) -> Any:
        return self.user(parameters["accountId"][0].partition(":")[2])

    def list_members(self, *, parameters: Parameters) -> Any:
        name = parameters["groupId"][0].removeprefix("id-") if self.is_cloud else parameters["groupname"][0]
        if name not in self.groups:
            raise NotFound
        return self.page([self.user(member) for member in sorted(self.groups[name])], "values", parameters)

    def search(self, *, parameters: Parameters) -> Any:
        match = _JQL.fullmatch(parameters["jql"][0])
        if match is None:
            raise Refused(400)
        since = self.now() - 60 * int(match["minutes"]) if match["minutes"] else 0.0
        results = [
            self.describe(issue, parameters["fields"][0].split(","))
            for issue in sorted({**self.issues, **self.indexed}.values(), key=lambda issue: int(issue.id))
            if issue.project == match["project"] and issue.updated >= since and not issue.archived
            and issue.id not in self.unindexed
        ]  # fmt: skip
        if not self.is_cloud:
            return self.page(results, "issues", parameters)
        start = int(parameters.get("nextPageToken", ["at-0"])[0].removeprefix("at-"))
        following = start + self.max_results
        is_last = following >= len(results)
        token = {} if is_last else {"nextPageToken": f"at-{following}"}
        return {"issues": results[start:following], "isLast": is_last, **token}

    def get_issue(self, identifier: str, *, parameters: Parameters) -> Any:
        issue = self.issues.get(identifier)
        if issue is None or issue.project not in self.projects:
            raise NotFound
        return self.describe(issue, parameters["fields"][0].split(","))

    def fetch_issues(self, *, parameters: Parameters) -> Any:
        issues = [self.issues.get(identifier) for identifier in parameters["issueIdsOrKeys"]]
        visible = [issue for issue in issues if issue and issue.project in self.projects]
        return {"issues": [self.describe(issue, parameters["fields"]) for issue in visible], "issueErrors": []}

    def describe(self, issue: Issue, fields_of: Sequence[str] | None = None) -> dict[str, Any]:
        updated = datetime.fromtimestamp(issue.updated, UTC).isoformat()
        project = {"key": issue.project, "projectTypeKey": self.project_type}
        fields = {
            "summary": issue.summary, "description": issue.description, "updated": updated,
            "project": project, "security": {"id": issue.level} if issue.level else None,
            "reporter": self.user(issue.reporter), "assignee": self.user(issue.assignee) if issue.assignee else None,
            "status": {"name": issue.status} if issue.status else None, "issuetype": None, "labels": issue.labels,
            "attachment": [
                {"id": key, "filename": name, "size": len(data), "content": "https://elsewhere.example.org/file"}
                for key, (name, data) in issue.files.items()
            ],
            "archiveddate": updated if issue.archived else None, "issuerestriction": issue.restriction,
        }  # fmt: skip
        if fields_of is not None:
            fields = {name: value for name, value in fields.items() if name in fields_of}
        rendered = {"description": issue.description}
        return {"id": issue.id, "key": issue.key, "fields": fields, "renderedFields": rendered}

    def list_comments(self, identifier: str, *, parameters: Parameters) -> Any:
        comments = [
            self.describe_comment(comment, parameters["expand"][0]) for comment in self.issues[identifier].comments
        ]
        return self.page(comments, "comments", parameters)

    def describe_comment(self, comment: dict[str, Any], expand: str) -> dict[str, Any]:
        """Return a comment; its key `internal` is a field in the cloud, and a property in Data Center."""
        described = {"author": self.user("ann"), **comment}
        internal = described.pop("internal", None)
        if self.is_cloud:
            described["jsdPublic"] = not internal
        elif "properties" in expand.split(","):
            value = {"key": "sd.public.comment", "value": {"internal": internal}}
            described["properties"] = [] if internal is None else [value]
        return described

    def download(self, identifier: str, *, parameters: Parameters) -> bytes:
        for issue in self.issues.values():
            if identifier in issue.files:
                return issue.files[identifier][1]
        raise NotFound

    def page(self, results: list[dict[str, Any]], key: str, parameters: Parameters) -> dict[str, Any]:
        start = int(parameters.get("startAt", ["0"])[0])
        limit = min(int(parameters["maxResults"][0]), self.max_results)
        selected = results[start : start + limit][: max(0, len(results) - self.drops - start)]
        last = {"isLast": start + limit >= len(results)} if key == "values" else {}
        return {key: selected, "startAt": start, "maxResults": limit, "total": len(results), **last}
