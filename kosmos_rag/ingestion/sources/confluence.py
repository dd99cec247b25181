"""The pages, comments and attachments of a Confluence as a source."""

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from html import escape
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import GONE, SourceError
from kosmos_rag.core.section import Switch
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.atlassian import MAX_CONFIRMATIONS, OVERLAP_S, translate_form_errors
from kosmos_rag.ingestion.sources.atlassian_readers import narrow
from kosmos_rag.ingestion.sources.confluence_permissions import (
    Confluence,
    ConfluenceReaders,
    PageAt,
    name_attachment,
)
from kosmos_rag.ingestion.sources.files import PassCache, too_large_error
from kosmos_rag.ingestion.sources.listing import Entry, Listing
from kosmos_rag.ingestion.sources.spec import ConfluenceAccess, ConfluencePermissions, NamedReaders
from kosmos_rag.parsing import media_types

_TYPES = "page, blogpost, comment, attachment"
_ID = re.compile(r"(?:att)?[0-9]{1,20}")


class ConfluenceSpec(NamedReaders, ConfluenceAccess):
    """A Confluence, its spaces, and who reads them."""

    kind: Literal["confluence"] = "confluence"
    attachments: Switch = True
    """Read the files that are attached to pages."""
    comments: Switch = True
    """Add the comments of a page to its document."""
    full_every_s: Annotated[int, Field(strict=True, ge=0)] = 3600
    """Seconds after which a pass lists everything: only then deleted pages are missed."""


class ConfluenceSource:
    """The pages of a Confluence, each with its comments, and their attachments.

    Most passes ask for what has changed since the last one, and one an hour for everything.
    """

    def __init__(self, spec: ConfluenceSpec, settings: IngestionSettings) -> None:
        """Prepare requests; nothing is sent yet. Raises ConfigError if the variable is not set."""
        self._spec = spec
        self._feed = spec.permissions if isinstance(spec.permissions, ConfluencePermissions) else None
        self._confluence = Confluence(spec, settings)
        self._client = self._confluence.client
        self._prefix = self._confluence.prefix
        self._max_bytes = settings.max_file_bytes
        self._cache = PassCache("confluence", *self._client.identity, sorted(spec.spaces))

    def listing(self) -> Listing:
        """Start a pass."""
        confirmation = _Confirmation(self._confluence, attachments=self._spec.attachments)

        def covers(name: str) -> bool:
            return confirmation.is_gone(name, listing)

        listing = Listing(self._prefix, self._entries(confirmation), covers, prefix=self._prefix)
        return listing

    def load(self, entry: Entry) -> SourceDocument:
        """Read a document, and its readers before and after that. Raises SourceError."""
        with translate_form_errors(self._spec.url):
            before = self._find_readers(entry) if self._feed else ()
            document = self._load_attachment(entry) if "download" in entry.locator else self._load_page(entry)
            after = self._find_readers(entry)
            return replace(document, readers=narrow(before, after) if self._feed else None)

    def _entries(self, confirmation: "_Confirmation") -> Iterator[Entry | IngestFailure]:
        began = time.time()
        with translate_form_errors(self._spec.url):
            spaces = self._confluence.list_spaces()
            confirmation.spaces = spaces
            for key in sorted(set(self._spec.spaces) - spaces.keys()):
                message = f"{self._spec.url} shows the account no space {key}; check its permissions, or remove the key"
                yield IngestFailure(source=f"{self._prefix}{key}", code="not_found", message=one_line(message))
            cached = self._cache.read()
            compared = cached.get("compared", 0.0)
            elapsed = began - cached.get("listed", 0.0)
            is_recent = elapsed >= 0 and 0 <= began - compared < self._spec.full_every_s
            is_full = cached.get("spaces") != spaces or not is_recent
            content = _Content({} if is_full else cached["items"], spaces)
            for key in spaces:
                query = f'space = "{key}" and type in ({_TYPES})'
                if not is_full:
                    query += f" and lastmodified >= {_minutes_ago(elapsed)}"
                for result in self._confluence.search(query, "version,space,container"):
                    content.add(result)
            yield from self._list_entries(content)
        self._cache.write(
            {
                "listed": began,
                "compared": began if is_full else compared,
                "spaces": spaces,
                "items": content.items,
            }
        )

    def _list_entries(self, content: "_Content") -> Iterator[Entry | IngestFailure]:
        comments = content.group_comments() if self._spec.comments else {}
        for identifier, item in content.items.items():
            if item["type"] in ("page", "blogpost"):
                state = item["version"], item["space"], comments.get(identifier, [])
                yield Entry(
                    source=self._prefix + identifier,
                    etag=self._spec.compute_etag(*state),
                    locator={"page": identifier},
                )
            elif item["type"] == "attachment" and self._spec.attachments:
                yield self._entry_of_attachment(identifier, item)

    def _entry_of_attachment(self, identifier: str, item: Mapping[str, Any]) -> Entry | IngestFailure:
        name = name_attachment(
            self._prefix, {"id": identifier, "title": item["title"], "container": {"id": item["container"]}}
        )
        if item["size"] > self._max_bytes:
            error = too_large_error(one_line(name), self._max_bytes)
            return IngestFailure(source=name, code=error.code, message=str(error))
        return Entry(
            source=name,
            etag=self._spec.compute_etag(item["version"], item["space"]),
            locator={"page": item["container"], "download": item["download"]},
        )

    def _load_page(self, entry: Entry) -> SourceDocument:
        identifier = entry.locator["page"]
        page = next(self._confluence.search(f"id = {identifier}", "body.storage,version,space,history"), None)
        if page is None:
            raise _gone_error(entry)
        parts = [page["body"]["storage"]["value"]]
        if self._spec.comments:
            answer = self._confluence.search(f"container = {identifier} and type = comment", "body.storage,version")
            comments = sorted(answer, key=lambda comment: int(comment["id"]))
            parts += ["<h2>Comments</h2>"] if comments else []
            parts += [
                f"<p>{escape(_name_author(comment))}:</p>{comment['body']['storage']['value']}" for comment in comments
            ]
        metadata = {
            "space": page["space"]["key"],
            "updated": page["version"]["when"],
            "link": f"{self._spec.url}{page['_links']['webui']}",
        }
        document = self._spec.document(entry.source, "".join(parts).encode(), title=page["title"], metadata=metadata)
        return replace(document, media_type=media_types.HTML)

    def _load_attachment(self, entry: Entry) -> SourceDocument:
        path = entry.locator["download"].lstrip("/")
        if urlsplit(path).scheme or path.startswith("."):
            raise SourceError("refused", f"{one_line(entry.source)} is stored at another address; read it there")
        data = self._client.download(path)
        return self._spec.document(entry.source, data)

    def _find_readers(self, entry: Entry) -> tuple[str, ...]:
        """Return who may read a page now, where a feed of the Confluence decides.

        Raises SourceError, also if the page is in no space of the spec any more.
        """
        answer = next(self._confluence.search(f"id = {entry.locator['page']}", "space,ancestors"), None)
        if answer is None or not self._confluence.is_read(answer["space"]):
            raise _gone_error(entry)
        if self._feed is None:
            return ()
        readers = ConfluenceReaders(self._confluence, signed_in=self._feed.signed_in)
        at = PageAt.read(answer)
        conditions = readers.find_conditions(at)
        if conditions is None:
            return ()
        viewers = readers.find_space(at.space, str(answer["space"]["id"]))
        return tuple(sorted(readers.resolve([viewers, *conditions])))


def _gone_error(entry: Entry) -> SourceError:
    return SourceError(GONE, f"{one_line(entry.source)} was removed, or left the spaces, after it was listed")


def _name_author(comment: Mapping[str, Any]) -> str:
    author = comment["version"].get("by") or {}
    return str(author.get("displayName") or "?")


def _minutes_ago(elapsed_s: float) -> str:
    """Return a time of CQL.

    A date would be read in the time zone of the account.
    """
    return f'now("-{int(elapsed_s + OVERLAP_S) // 60 + 1}m")'


class _Content:
    """What the passes have found: pages, comments and attachments by their ids, as JSON."""

    def __init__(self, items: dict[str, dict[str, Any]], spaces: Collection[str]) -> None:
        self.items = items
        self._spaces = spaces

    def add(self, answer: Mapping[str, Any]) -> None:
        """Add content as a search describes it."""
        identifier = str(answer["id"])
        if answer["space"]["key"] not in self._spaces:
            self.items.pop(identifier, None)
            return
        item = {"type": answer["type"], "version": answer["version"]["number"], "space": answer["space"]["key"]}
        if answer["type"] in ("comment", "attachment"):
            item["container"] = str(answer["container"]["id"])
        if answer["type"] == "attachment":
            item |= {
                "title": answer["title"],
                "size": int(answer.get("extensions", {}).get("fileSize") or 0),
                "download": answer["_links"]["download"],
            }
        self.items[identifier] = item

    def group_comments(self) -> dict[str, list[tuple[str, int]]]:
        """Return ids and versions of the comments of each page."""
        comments: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for identifier, item in self.items.items():
            if item["type"] == "comment":
                comments[item["container"]].append((identifier, item["version"]))
        return {page: sorted(answer) for page, answer in comments.items()}


class _Confirmation:
    """Asks whether documents that a pass has not found are gone.

    A search may lack them: its index is behind, or a page of results moved while it was read.
    """

    def __init__(self, confluence: Confluence, *, attachments: bool) -> None:
        self.spaces: Mapping[str, str] = {}
        """Ids of the spaces of the pass, by key."""
        self._confluence, self._attachments = confluence, attachments
        self._left = MAX_CONFIRMATIONS
        self._pages: dict[str, bool] = {}

    def is_gone(self, name: str, listing: Listing) -> bool:
        """Return whether a document is one of this source, and is gone.

        Args:
            name: of a document that the pass has not listed.
            listing: of the pass.
        """
        if not name.startswith(self._confluence.prefix):
            return False
        if not listing.complete:
            return True  # nothing is removed then
        page, _, attachment = name.removeprefix(self._confluence.prefix).partition("/")
        if not _ID.fullmatch(page) or (attachment and not self._attachments):
            return True
        try:
            with translate_form_errors(name):
                return not (self._has_page(page) and (not attachment or self._has_attachment(page, attachment)))
        except SourceError:
            return False

    def _find(self, *paths: str) -> dict[str, Any] | None:
        if self._left <= 0:
            raise SourceError("unavailable", f"{MAX_CONFIRMATIONS} missing documents; the next pass asks for the rest")
        self._left -= 1
        answer = next((answer for path in paths if (answer := self._confluence.client.find(path))), None)
        if answer is None:
            self._confluence.require_account()  # or else nothing of the site is found any more
        return answer

    def _has_page(self, page: str) -> bool:
        if page not in self._pages:
            if self._confluence.is_cloud:
                answer = self._find(f"api/v2/pages/{page}", f"api/v2/blogposts/{page}")
                is_inside = answer is not None and str(answer["spaceId"]) in self.spaces.values()
            else:
                answer = self._find(f"rest/api/content/{page}?expand=space")
                is_inside = answer is not None and answer["space"]["key"] in self.spaces
            self._pages[page] = answer is not None and answer["status"] == "current" and is_inside
        return self._pages[page]

    def _has_attachment(self, page: str, path: str) -> bool:
        identifier, _, title = path.partition("/")
        if not _ID.fullmatch(identifier):
            return False
        if self._confluence.is_cloud:
            answer = self._find(f"api/v2/attachments/{identifier}")
            at = None if answer is None else answer.get("pageId") or answer.get("blogPostId")
        else:
            answer = self._find(f"rest/api/content/{identifier}?expand=container")
            at = None if answer is None else answer["container"]["id"]
        return answer is not None and answer["status"] == "current" and (str(at), answer["title"]) == (page, title)
