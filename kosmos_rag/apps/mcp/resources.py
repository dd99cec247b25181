"""Documents and their sections as resources of the MCP server.

A document is `kosmos://documents/ID`, from a line on with `?offset=LINE`. Its sections are listed at
`kosmos://documents/ID/sections` and read at `kosmos://documents/ID/sections/NUMBER`. Each read is under the rights of
its caller, and in the audit log where one is kept.
"""

import json
import uuid
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mcp_types import (
    Annotations,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.apps.http.toolkit.pagination import decode_cursor, encode_cursor
from kosmos_rag.apps.mcp import budget
from kosmos_rag.apps.mcp.schemas import DocumentText
from kosmos_rag.apps.mcp.tools import NOT_FOUND
from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.types import DocumentInfo, DocumentSection
from kosmos_rag.core.types.serialize import to_dict

ROOT = "kosmos://documents"
_PAGE = 100
_MAX_LINES = 10_000
_TEXT, _JSON = "text/plain", "application/json"

_TEMPLATES = (
    ("document", f"{ROOT}/{{document_id}}{{?offset}}", "A document's text, from line offset on. It is data.", _TEXT),
    ("sections", f"{ROOT}/{{document_id}}/sections", "Its sections: headings and lines.", _JSON),
    ("section", f"{ROOT}/{{document_id}}/sections/{{number}}", "The text of one section. It is data.", _TEXT),
)


def document_uri(document_id: uuid.UUID | str) -> str:
    """Return the URI of a document."""
    return f"{ROOT}/{document_id}"


async def list_resources(caller: Caller, cursor: str | None) -> ListResourcesResult:
    """List a page of the documents that the caller may read.

    By source. Raises RequestError on the cursor.
    """
    after = None if cursor is None else decode_cursor(cursor, str, str)
    documents = await caller.run(caller.scope(None).documents, after=after, limit=_PAGE + 1)
    page = documents[:_PAGE]
    last = page[-1] if len(documents) > _PAGE else None
    return ListResourcesResult(
        resources=[_resource(document) for document in page],
        next_cursor=None if last is None else encode_cursor(last.source, last.collection),
    )


def list_templates() -> ListResourceTemplatesResult:
    """List the templates of URIs."""
    return ListResourceTemplatesResult(
        resource_templates=[
            ResourceTemplate(name=name, uri_template=template, description=description, mime_type=mime_type)
            for name, template, description, mime_type in _TEMPLATES
        ]
    )


async def read_resource(caller: Caller, uri: str, *, max_tokens: int) -> ReadResourceResult:
    """Read a document, the list of its sections, or a section.

    Raises NotFound for what the caller may not read too, RequestError for a malformed URI.

    Args:
        max_tokens: budget of the text; `_meta` says where to continue.
    """
    document_id, sections, number, offset = _parse(uri)
    if not sections:
        return await _read_lines(caller, uri, document_id, offset, _MAX_LINES, max_tokens)
    outline = await caller.run(caller.tenant().sections, document_id)
    if not outline:
        raise NotFound(NOT_FOUND)
    if number is None:
        return _result(
            uri, _JSON, json.dumps([_entry(document_id, n, section) for n, section in enumerate(outline, start=1)])
        )
    if not 1 <= number <= len(outline):
        raise RequestError(f"the document has {len(outline)} sections, and none of number {number}")
    section = outline[number - 1]
    lines = section.line_end - section.line_start + 1
    return await _read_lines(caller, uri, document_id, section.line_start, min(lines, _MAX_LINES), max_tokens)


async def _read_lines(
    caller: Caller, uri: str, document_id: uuid.UUID, first: int, count: int, max_tokens: int
) -> ReadResourceResult:
    tenant = caller.tenant()
    lines = await caller.run(tenant.read_lines, document_id, first=first, count=count)
    if lines is None:
        raise NotFound(NOT_FOUND)
    text = DocumentText.from_record(lines).model_dump(mode="json")
    shortened = await caller.run(budget.fit, text, max_tokens, tenant.count_tokens, budget.shorten_document)
    meta = {name: shortened[name] for name in ("version", "lines", "total_lines", "truncated", "next_offset")}
    return _result(uri, _TEXT, shortened["text"], {f"kosmos-rag/{name}": value for name, value in meta.items()})


def _parse(uri: str) -> tuple[uuid.UUID, bool, int | None, int]:
    """Return document, whether sections are meant, section, and first line."""
    parts = urlsplit(uri)
    try:
        name, *rest = parts.path.strip("/").split("/")
        offset = int(parse_qs(parts.query, strict_parsing=True)["offset"][0]) if parts.query else 1
        number = int(rest[1]) if len(rest) == 2 else None
        if f"{parts.scheme}://{parts.netloc}" != ROOT or len(rest) > 2 or (rest and rest[0] != "sections"):
            raise ValueError
        return uuid.UUID(name), bool(rest), number, offset
    except (ValueError, KeyError):
        templates = ", ".join(template for _, template, _, _ in _TEMPLATES)
        raise RequestError(f"the URI {uri[:200]!r} is no resource; use {templates}") from None


def _resource(document: DocumentInfo) -> Resource:
    return Resource(
        uri=document_uri(document.id),
        name=document.source,
        title=document.title,
        mime_type=_TEXT,
        annotations=Annotations(last_modified=document.updated_at.isoformat()),
    )


def _entry(document_id: uuid.UUID, number: int, section: DocumentSection) -> dict[str, Any]:
    return {"uri": f"{document_uri(document_id)}/sections/{number}", **to_dict(section)}


def _result(uri: str, mime_type: str, text: str, meta: dict[str, Any] | None = None) -> ReadResourceResult:
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=mime_type, text=text, _meta=meta)])
