"""The issues of a Jira, with their comments, and their attachments as a source."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from typing import Any, Literal
from urllib.parse import quote

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.atlassian_source import AtlassianSource, AtlassianSpec, Confirmation
from kosmos_rag.ingestion.sources.jira_permissions import READER_FIELDS, IssueAt, Jira, JiraReaders, name_attachments
from kosmos_rag.ingestion.sources.listing import Entry
from kosmos_rag.ingestion.sources.pass_items import PassItem, PassItems
from kosmos_rag.ingestion.sources.spec import JiraAccess, JiraPermissions
from kosmos_rag.parsing import media_types

_LISTED_FIELDS = "project,updated,attachment"
_SHOWN_FIELDS = ("issuetype", "status", "priority")
_ISSUE = re.compile(r"[0-9]{1,20}")
_MAX_COMMENTS = 100
_SERVICE_DESK = "service_desk"
_COMMENT_PROPERTY = "sd.public.comment"


class JiraSpec(AtlassianSpec, JiraAccess):
    """A Jira, its projects, and who reads them."""

    kind: Literal["jira"] = "jira"


class JiraSource(AtlassianSource[Jira, JiraSpec]):
    """The issues of a Jira with their comments, and their attachments."""

    container, attachment_key = "project", "attachment"

    def __init__(self, spec: JiraSpec, settings: IngestionSettings) -> None:
        """Prepare requests; nothing is sent yet. Raises ConfigError if the variable is not set."""
        super().__init__(spec, Jira(spec, settings), spec.projects, settings)
        self._feed = spec.permissions if isinstance(spec.permissions, JiraPermissions) else None

    def _create_confirmation(self, containers: Mapping[str, str]) -> "_Confirmation":
        return _Confirmation(self._site, containers, self._spec)

    def _list_containers(self) -> dict[str, str]:
        return self._site.list_projects()

    def _search(self, container: str, minutes: int | None) -> Iterator[Mapping[str, Any]]:
        since = "" if minutes is None else f' and updated >= "-{minutes}m"'
        return self._site.search(f'project = "{container}"{since} order by key', _LISTED_FIELDS)

    def _count(self, container: str) -> int | None:
        if self._site.is_cloud:
            return None  # it estimates
        query = f'project = "{container}" order by key'
        answer = self._client.get("rest/api/2/search", jql=query, fields="project", maxResults=0)
        return int(answer["total"])

    def _update(
        self,
        items: PassItems,
        answer: Mapping[str, Any],
        containers: Mapping[str, str],  # noqa: ARG002 — a search of a project has its issues only
    ) -> None:
        files = [
            {"id": str(file["id"]), "filename": file["filename"], "size": file["size"]}
            for file in answer["fields"].get("attachment") or ()
        ]
        fields = answer["fields"]
        value = {"updated": fields["updated"], "files": files}
        items.put(PassItem(str(answer["id"]), fields["project"]["key"], value))

    def _list_entries(self, items: PassItems) -> Iterator[Entry | IngestFailure]:
        for identifier, _, value, _ in items:
            yield Entry(
                source=self._prefix + identifier,
                etag=self._spec.compute_etag(value["updated"]),
                locator={"issue": identifier},
            )
            for file in value["files"] if self._spec.attachments else ():
                name = f"{self._prefix}{identifier}/{file['id']}/{file['filename']}"
                locator = {"issue": identifier, "attachment": file["id"], "filename": file["filename"]}
                yield self._build_attachment(name, file["size"], (file["id"],), locator)

    def _has_feed(self) -> bool:
        return self._feed is not None

    def _load_document(self, entry: Entry) -> SourceDocument:
        identifier = entry.locator["issue"]
        names = ",".join(("summary", "description", "labels", "project", "updated", *_SHOWN_FIELDS))
        issue = self._client.find(f"rest/api/2/issue/{identifier}", fields=names, expand="renderedFields")
        if issue is None:
            raise self._gone_error(entry)
        fields = issue["fields"]
        values = {name: fields[name]["name"] for name in _SHOWN_FIELDS if fields.get(name)}
        words = ", ".join([*values.values(), *(fields.get("labels") or ())])
        parts = [f"<p>{escape(words)}</p>"] if words else []
        parts.append((issue.get("renderedFields") or {}).get("description") or "")
        if self._spec.comments:
            # A project of an unknown type may be a service desk.
            is_desk = fields["project"].get("projectTypeKey", _SERVICE_DESK) == _SERVICE_DESK
            parts += self._read_comments(identifier, is_desk=is_desk)
        metadata = {
            **values,
            "key": issue["key"],
            "project": fields["project"]["key"],
            "updated": fields["updated"],
            "link": f"{self._spec.url}/browse/{issue['key']}",
        }
        title = f"{issue['key']} {fields['summary']}"
        document = self._spec.document(entry.source, "".join(parts).encode(), title=title, metadata=metadata)
        return replace(document, media_type=media_types.HTML)

    def _read_comments(self, issue: str, *, is_desk: bool) -> list[str]:
        """Return the comments that everybody sees who sees the issue.

        Those for a role or a group, and internal ones of a service desk, are left out.
        """
        path = f"rest/api/2/issue/{issue}/comment"
        expand = "renderedBody,properties"
        comments = [
            f"<p>{escape((comment.get('author') or {}).get('displayName') or '?')}:</p>{comment['renderedBody']}"
            for comment in self._client.list_counted(path, "comments", maxResults=_MAX_COMMENTS, expand=expand)
            if not comment.get("visibility") and not _is_internal(comment, is_desk=is_desk)
        ]
        return ["<h2>Comments</h2>", *comments] if comments else []

    def _load_attachment(self, entry: Entry) -> SourceDocument:
        identifier, filename = entry.locator["attachment"], entry.locator["filename"]
        if self._site.is_cloud:
            path = f"rest/api/2/attachment/content/{identifier}"
        else:
            path = f"secure/attachment/{identifier}/{quote(filename, safe='')}"
        return self._spec.document(entry.source, self._client.download(path))

    def _find_readers(self, entry: Entry) -> tuple[str, ...]:
        answer = self._client.find(f"rest/api/2/issue/{entry.locator['issue']}", fields=READER_FIELDS)
        if answer is None or answer["fields"]["project"]["key"] not in self._spec.projects:
            raise self._gone_error(entry)
        if self._feed is None:
            return ()
        at = IssueAt.read(answer, is_cloud=self._site.is_cloud)
        return tuple(sorted(JiraReaders(self._site, signed_in=self._feed.signed_in).resolve(at)))


class _Confirmation(Confirmation[Jira]):
    def __init__(self, site: Jira, containers: Mapping[str, str], spec: JiraSpec) -> None:
        super().__init__(site, containers)
        self._spec = spec
        self._names: dict[str, set[str]] = {}

    def _has_document(self, path: str) -> bool:
        issue = path.partition("/")[0]
        return bool(_ISSUE.fullmatch(issue)) and self._site.prefix + path in self._list_names(issue)

    def _list_names(self, identifier: str) -> set[str]:
        """Return the names of the documents that an issue has by now."""
        if identifier not in self._names:
            issue = self._find(f"rest/api/2/issue/{identifier}", fields=f"{_LISTED_FIELDS},archiveddate")
            names: set[str] = set()
            if issue is not None and _is_current(issue, self._spec):
                files = name_attachments(self._site.prefix, issue) if self._spec.attachments else {}
                names = {f"{self._site.prefix}{identifier}", *files.values()}
            self._names[identifier] = names
        return self._names[identifier]


def _is_current(issue: Mapping[str, Any], spec: JiraSpec) -> bool:
    return issue["fields"]["project"]["key"] in spec.projects and not issue["fields"].get("archiveddate")


def _is_internal(comment: Mapping[str, Any], *, is_desk: bool) -> bool:
    """Return whether only the agents of a service desk see a comment.

    The cloud says so in a field, and Data Center in a property. Without both, a comment of a service desk is internal.
    """
    properties = {entry["key"]: entry["value"] for entry in comment.get("properties") or ()}
    signs = [comment["jsdPublic"] is not True] if "jsdPublic" in comment else []
    if _COMMENT_PROPERTY in properties:
        value = properties[_COMMENT_PROPERTY]
        signs.append(not isinstance(value, Mapping) or str(value.get("internal")).lower() != "false")
    return any(signs) if signs else is_desk
