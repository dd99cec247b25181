"""The pages, comments and attachments of a Confluence as a source."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape
from typing import Any, Literal
from urllib.parse import urlsplit

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.sources.atlassian_source import AtlassianSource, AtlassianSpec, Confirmation
from kosmos_rag.ingestion.sources.confluence_permissions import (
    Confluence,
    ConfluenceReaders,
    PageAt,
    name_attachment,
)
from kosmos_rag.ingestion.sources.listing import Entry
from kosmos_rag.ingestion.sources.pass_items import PassItem, PassItems
from kosmos_rag.ingestion.sources.spec import ConfluenceAccess, ConfluencePermissions
from kosmos_rag.parsing import media_types

_EVERYTHING = 'space = "{}" and type in (page, blogpost, comment, attachment)'
_ID = re.compile(r"(?:att)?[0-9]{1,20}")


class ConfluenceSpec(AtlassianSpec, ConfluenceAccess):
    """A Confluence, its spaces, and who reads them."""

    kind: Literal["confluence"] = "confluence"


class ConfluenceSource(AtlassianSource[Confluence, ConfluenceSpec]):
    """The pages of a Confluence, each with its comments, and their attachments."""

    container, attachment_key = "space", "download"

    def __init__(self, spec: ConfluenceSpec, settings: IngestionSettings) -> None:
        """Prepare requests; nothing is sent yet. Raises ConfigError if the variable is not set."""
        super().__init__(spec, Confluence(spec, settings), spec.spaces, settings)
        self._feed = spec.permissions if isinstance(spec.permissions, ConfluencePermissions) else None

    def _create_confirmation(self, containers: Mapping[str, str]) -> "_Confirmation":
        return _Confirmation(self._site, containers, attachments=self._spec.attachments)

    def _list_containers(self) -> dict[str, str]:
        return self._site.list_spaces()

    def _search(self, container: str, minutes: int | None) -> Iterator[Mapping[str, Any]]:
        since = "" if minutes is None else f' and lastmodified >= now("-{minutes}m")'
        return self._site.search(_EVERYTHING.format(container) + since, "version,space,container")

    def _count(self, container: str) -> int | None:
        answer = self._client.find_shown("rest/api/search", cql=_EVERYTHING.format(container), limit=1)
        total = None if answer is None else answer.get("totalSize")
        return None if total is None else int(total)

    def _update(self, items: PassItems, answer: Mapping[str, Any], containers: Mapping[str, str]) -> None:
        identifier = str(answer["id"])
        if answer["space"]["key"] not in containers:
            items.remove(identifier)
            return
        value = {"type": answer["type"], "version": answer["version"]["number"]}
        parent = str(answer["container"]["id"]) if answer["type"] in ("comment", "attachment") else None
        if answer["type"] == "attachment":
            value |= {
                "title": answer["title"],
                "size": int(answer.get("extensions", {}).get("fileSize") or 0),
                "download": answer["_links"]["download"],
                "updated": answer["version"].get("when"),
            }
        items.put(PassItem(identifier, answer["space"]["key"], value, parent))

    def _list_entries(self, items: PassItems) -> Iterator[Entry | IngestFailure]:
        for identifier, space, value, parent in items:
            if value["type"] in ("page", "blogpost"):
                children = items.list_children(identifier) if self._spec.comments else ()
                comments = sorted(
                    (child.id, child.value["version"]) for child in children if child.value["type"] == "comment"
                )
                yield Entry(
                    source=self._prefix + identifier,
                    etag=self._spec.compute_etag(value["version"], space, comments),
                    locator={"page": identifier},
                )
            elif value["type"] == "attachment" and self._spec.attachments:
                attachment = {"id": identifier, "title": value["title"], "container": {"id": parent}}
                name = name_attachment(self._prefix, attachment)
                updated = value.get("updated")
                locator = {"page": parent, "download": value["download"], "updated": updated}
                etag = [value["version"], space, *([updated] if updated else [])]
                yield self._build_attachment(name, value["size"], etag, locator)

    def _has_feed(self) -> bool:
        return self._feed is not None

    def _load_document(self, entry: Entry) -> SourceDocument:
        identifier = entry.locator["page"]
        page = next(self._site.search(f"id = {identifier}", "body.storage,version,space,history"), None)
        if page is None:
            raise self._gone_error(entry)
        parts = [page["body"]["storage"]["value"]]
        if self._spec.comments:
            answer = self._site.search(f"container = {identifier} and type = comment", "body.storage,version")
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
        metadata = {"updated": updated} if (updated := entry.locator.get("updated")) else {}
        return self._spec.document(entry.source, data, metadata=metadata)

    def _find_readers(self, entry: Entry) -> tuple[str, ...]:
        answer = next(self._site.search(f"id = {entry.locator['page']}", "space,ancestors"), None)
        if answer is None or not self._site.is_read(answer["space"]):
            raise self._gone_error(entry)
        if self._feed is None:
            return ()
        readers = ConfluenceReaders(self._site, signed_in=self._feed.signed_in)
        at = PageAt.read(answer)
        conditions = readers.find_conditions(at)
        if conditions is None:
            return ()
        viewers = readers.find_space(at.space, str(answer["space"]["id"]))
        return tuple(sorted(readers.resolve([viewers, *conditions])))


def _name_author(comment: Mapping[str, Any]) -> str:
    author = comment["version"].get("by") or {}
    return str(author.get("displayName") or "?")


class _Confirmation(Confirmation[Confluence]):
    def __init__(self, site: Confluence, containers: Mapping[str, str], *, attachments: bool) -> None:
        super().__init__(site, containers)
        self._attachments = attachments
        self._pages: dict[str, bool] = {}

    def _has_document(self, path: str) -> bool:
        page, _, attachment = path.partition("/")
        if not _ID.fullmatch(page) or (attachment and not self._attachments):
            return False
        return self._has_page(page) and (not attachment or self._has_attachment(page, attachment))

    def _has_page(self, page: str) -> bool:
        if page not in self._pages:
            if self._site.is_cloud:
                answer = self._find(f"api/v2/pages/{page}", f"api/v2/blogposts/{page}")
                is_inside = answer is not None and str(answer["spaceId"]) in self._containers.values()
            else:
                answer = self._find(f"rest/api/content/{page}?expand=space")
                is_inside = answer is not None and answer["space"]["key"] in self._containers
            self._pages[page] = answer is not None and answer["status"] == "current" and is_inside
        return self._pages[page]

    def _has_attachment(self, page: str, path: str) -> bool:
        identifier, _, title = path.partition("/")
        if not _ID.fullmatch(identifier):
            return False
        if self._site.is_cloud:
            answer = self._find(f"api/v2/attachments/{identifier}")
            at = None if answer is None else answer.get("pageId") or answer.get("blogPostId")
        else:
            answer = self._find(f"rest/api/content/{identifier}?expand=container")
            at = None if answer is None else answer["container"]["id"]
        return answer is not None and answer["status"] == "current" and (str(at), answer["title"]) == (page, title)
