"""The issues of a Jira, with their comments, and their attachments as a source."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import Field

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import GONE, SourceError
from kosmos_rag.core.section import Switch
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.atlassian import MAX_CONFIRMATIONS, OVERLAP_S, translate_form_errors
from kosmos_rag.ingestion.sources.atlassian_readers import narrow
from kosmos_rag.ingestion.sources.files import PassCache, too_large_error
from kosmos_rag.ingestion.sources.jira_permissions import READER_FIELDS, IssueAt, Jira, JiraReaders, name_attachments
from kosmos_rag.ingestion.sources.listing import Entry, Listing
from kosmos_rag.ingestion.sources.spec import JiraAccess, JiraPermissions, NamedReaders
from kosmos_rag.parsing import media_types

_LISTED_FIELDS = "project,updated,attachment"
_SHOWN_FIELDS = ("issuetype", "status", "priority")
_ISSUE = re.compile(r"[0-9]{1,20}")
_MAX_COMMENTS = 100
_SERVICE_DESK = "service_desk"
_COMMENT_PROPERTY = "sd.public.comment"


class JiraSpec(NamedReaders, JiraAccess):
    """A Jira, its projects, and who reads them."""

    kind: Literal["jira"] = "jira"
    attachments: Switch = True
    """Read the files that are attached to issues."""
    comments: Switch = True
    """Add the comments of an issue to its document."""
    full_every_s: Annotated[int, Field(strict=True, ge=0)] = 3600
    """Seconds after which a pass lists everything: only then deleted issues are missed."""


class JiraSource:
    """The issues of a Jira with their comments, and their attachments.

    Most passes ask for what has changed since the last one.
    """

    def __init__(self, spec: JiraSpec, settings: IngestionSettings) -> None:
        """Prepare requests; nothing is sent yet. Raises ConfigError if the variable is not set."""
        self._spec = spec
        self._feed = spec.permissions if isinstance(spec.permissions, JiraPermissions) else None
        self._jira = Jira(spec, settings)
        self._client, self._prefix = self._jira.client, self._jira.prefix
        self._max_bytes = settings.max_file_bytes
        self._cache = PassCache("jira", *self._client.identity, sorted(spec.projects))

    def listing(self) -> Listing:
        """Start a pass."""
        confirmation = _Confirmation(self._jira, self._spec)

        def covers(name: str) -> bool:
            return confirmation.is_gone(name, listing)

        listing = Listing(self._prefix, self._entries(), covers, prefix=self._prefix)
        return listing

    def load(self, entry: Entry) -> SourceDocument:
        """Read a document, and its readers before and after that. Raises SourceError."""
        with translate_form_errors(self._spec.url):
            before = self._find_readers(entry) if self._feed else ()
            document = self._load_attachment(entry) if "attachment" in entry.locator else self._load_issue(entry)
            after = self._find_readers(entry)
            return replace(document, readers=narrow(before, after) if self._feed else None)

    def _entries(self) -> Iterator[Entry | IngestFailure]:
        began = time.time()
        with translate_form_errors(self._spec.url):
            projects = self._jira.list_projects()
            for key in sorted(set(self._spec.projects) - projects.keys()):
                message = f"{self._spec.url} shows the account no project {key}; let it browse that, or remove the key"
                yield IngestFailure(source=f"{self._prefix}{key}", code="not_found", message=one_line(message))
            cached = self._cache.read()
            compared = cached.get("compared", 0.0)
            elapsed = began - cached.get("listed", 0.0)
            is_recent = elapsed >= 0 and 0 <= began - compared < self._spec.full_every_s
            is_full = cached.get("projects") != projects or not is_recent
            items: dict[str, Any] = {} if is_full else cached["items"]
            for key in projects:
                # A date would be read in the time zone of the account.
                since = "" if is_full else f' and updated >= "-{_count_minutes(elapsed)}m"'
                for issue in self._jira.search(f'project = "{key}"{since} order by key', _LISTED_FIELDS):
                    items[str(issue["id"])] = _describe(issue)
            for identifier, item in items.items():
                yield from self._list_entries(identifier, item)
        compared = began if is_full else compared
        self._cache.write({"listed": began, "compared": compared, "projects": projects, "items": items})

    def _list_entries(self, identifier: str, item: Mapping[str, Any]) -> Iterator[Entry | IngestFailure]:
        yield Entry(
            source=self._prefix + identifier,
            etag=self._spec.compute_etag(item["updated"]),
            locator={"issue": identifier},
        )
        for file in item["files"] if self._spec.attachments else ():
            name = f"{self._prefix}{identifier}/{file['id']}/{file['filename']}"
            if file["size"] > self._max_bytes:
                error = too_large_error(one_line(name), self._max_bytes)
                yield IngestFailure(source=name, code=error.code, message=str(error))
                continue
            locator = {"issue": identifier, "attachment": file["id"], "filename": file["filename"]}
            yield Entry(source=name, etag=self._spec.compute_etag(file["id"]), locator=locator)

    def _load_issue(self, entry: Entry) -> SourceDocument:
        identifier = entry.locator["issue"]
        names = ",".join(("summary", "description", "labels", "project", "updated", *_SHOWN_FIELDS))
        issue = self._client.find(f"rest/api/2/issue/{identifier}", fields=names, expand="renderedFields")
        if issue is None:
            raise _gone_error(entry)
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
        if self._jira.is_cloud:
            path = f"rest/api/2/attachment/content/{identifier}"
        else:
            path = f"secure/attachment/{identifier}/{quote(filename, safe='')}"
        return self._spec.document(entry.source, self._client.download(path))

    def _find_readers(self, entry: Entry) -> tuple[str, ...]:
        """Return who may read an issue now, where a feed of the Jira decides.

        Raises SourceError, also if the issue is in no project of the spec any more.
        """
        answer = self._client.find(f"rest/api/2/issue/{entry.locator['issue']}", fields=READER_FIELDS)
        if answer is None or answer["fields"]["project"]["key"] not in self._spec.projects:
            raise _gone_error(entry)
        if self._feed is None:
            return ()
        at = IssueAt.read(answer, is_cloud=self._jira.is_cloud)
        return tuple(sorted(JiraReaders(self._jira, signed_in=self._feed.signed_in).resolve(at)))


class _Confirmation:
    """Asks whether documents that a pass has not found are gone.

    A search may lack them: its index is behind, or a page of results moved while it was read.
    """

    def __init__(self, jira: Jira, spec: JiraSpec) -> None:
        self._jira, self._spec = jira, spec
        self._left = MAX_CONFIRMATIONS
        self._names: dict[str, set[str]] = {}

    def is_gone(self, name: str, listing: Listing) -> bool:
        """Return whether a document is one of this source, and is gone.

        Args:
            name: of a document that the pass has not listed.
            listing: of the pass.
        """
        if not name.startswith(self._jira.prefix):
            return False
        issue = name.removeprefix(self._jira.prefix).partition("/")[0]
        # Nothing is removed after a pass that failed.
        if not listing.complete or not _ISSUE.fullmatch(issue):
            return True
        try:
            with translate_form_errors(name):
                return name not in self._list_names(issue)
        except SourceError:
            return False

    def _list_names(self, identifier: str) -> set[str]:
        """Return the names of the documents that an issue has by now."""
        if identifier not in self._names:
            if self._left <= 0:
                raise SourceError("unavailable", f"{MAX_CONFIRMATIONS} missing issues; the next pass asks for the rest")
            self._left -= 1
            issue = self._jira.client.find(f"rest/api/2/issue/{identifier}", fields=f"{_LISTED_FIELDS},archiveddate")
            if issue is None:
                self._jira.require_account()  # or else nothing of the site is found any more
            names: set[str] = set()
            if issue is not None and _is_current(issue, self._spec):
                files = name_attachments(self._jira.prefix, issue) if self._spec.attachments else {}
                names = {f"{self._jira.prefix}{identifier}", *files.values()}
            self._names[identifier] = names
        return self._names[identifier]


def _is_current(issue: Mapping[str, Any], spec: JiraSpec) -> bool:
    return issue["fields"]["project"]["key"] in spec.projects and not issue["fields"].get("archiveddate")


def _describe(issue: Mapping[str, Any]) -> dict[str, Any]:
    files = [
        {"id": str(file["id"]), "filename": file["filename"], "size": file["size"]}
        for file in issue["fields"].get("attachment") or ()
    ]
    return {"updated": issue["fields"]["updated"], "files": files}


def _gone_error(entry: Entry) -> SourceError:
    return SourceError(GONE, f"{one_line(entry.source)} was removed, or left the projects, after it was listed")


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


def _count_minutes(elapsed_s: float) -> int:
    """Return how many minutes back changes are asked for, as the index may be behind."""
    return int(elapsed_s + OVERLAP_S) // 60 + 1
