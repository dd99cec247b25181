"""Check the options of a result; encode the cursor of a page.

A cursor holds what the pages so far have shown, as eight bytes of a hash of each passage, and a digest of tenant,
reader and question. The next page is the ranking of that moment without it: whatever documents change, nothing comes
twice and nothing of the ranking is left out. It grants nothing: each page is a search under the policies of its reader.
"""

import base64
import binascii
import hashlib
import struct
from collections.abc import Collection
from dataclasses import dataclass

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Passage, ResultOptions, are_names

FIRST_PAGE = "*"
"""The cursor of the first page, as in Solr and OpenAlex."""
GROUP_SIZE, MAX_GROUP_SIZE = 3, 100
MAX_FACETS = 20
FACET_FIELDS = ("collection", "department", "media_type", "source")

_VERSION = 1
_HEAD = struct.Struct(">B8sH")
"""Version, digest of the search, number of hits so far."""
_KEY = 8
"""Bytes of a key: two of a ranking of hundreds are never equal by chance."""
_MAX_CHARS = 100_000
_MAX_HITS = 50_000
"""Hits on the pages before that a cursor may name: more than any ranking has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedOptions:
    """Options that are checked, with the position of their cursor."""

    options: ResultOptions
    digest: bytes
    """Of tenant, reader, question and filter; a cursor of another search has another one."""
    hits: int = 0
    """Hits on the pages before."""
    previous_keys: frozenset[bytes] = frozenset()
    """Keys of the hits on the pages before."""

    def compute_key(self, hit: Passage) -> bytes:
        """Return the key of a hit: its text, or its document.

        Not the id of a chunk: the next version of a document has the same passage with another id.
        """
        if self.options.group_by:
            return hit.document_id.bytes[:_KEY]
        # As `hydrate` compares copies.
        same = "\0".join((" ".join(hit.text.split()), hit.department or "", *hit.section[-1:]))
        return hashlib.sha256(same.encode()).digest()[:_KEY]

    def next_cursor(self, page_keys: Collection[bytes]) -> str:
        """Encode the cursor after a page with hits of these keys."""
        packed = _HEAD.pack(_VERSION, self.digest, self.hits + len(page_keys)) + b"".join(
            sorted({*self.previous_keys, *page_keys})
        )
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def parse_options(options: ResultOptions, search: object) -> ParsedOptions:
    """Check options and decode their cursor.

    Args:
        options: Of the request.
        search: What a cursor is bound to; its `repr` says all of it.

    Raises RequestError that names what is wrong, and for a cursor of another search.
    """
    _check(options)
    bound = repr((search, options.group_by)).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(bound).digest()[:8]
    parsed = ParsedOptions(options=options, digest=digest)
    return parsed if options.cursor in (None, FIRST_PAGE) else _decode(parsed, options.cursor or "")


def _decode(parsed: ParsedOptions, cursor: str) -> ParsedOptions:
    invalid = f"the cursor {cursor[:60]!r} is invalid; use next_cursor of the page before, or * for the first page"
    try:
        if len(cursor) > _MAX_CHARS:
            raise RequestError(invalid)
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        version, digest, hits = _HEAD.unpack_from(packed)
    except (binascii.Error, struct.error, ValueError):
        raise RequestError(invalid) from None
    ids = packed[_HEAD.size :]
    if version != _VERSION or len(ids) % _KEY or hits > _MAX_HITS:
        raise RequestError(invalid)
    if digest != parsed.digest:
        raise RequestError(
            "the cursor is of another search: tenant, reader, collection, question, filter and group_by must stay the "
            "same from page to page; use * for the first page"
        )
    previous_keys = frozenset(ids[start : start + _KEY] for start in range(0, len(ids), _KEY))
    return ParsedOptions(options=parsed.options, digest=digest, hits=hits, previous_keys=previous_keys)


def _check(options: ResultOptions) -> None:
    if options.cursor is not None and not isinstance(options.cursor, str):
        raise RequestError(
            f"cursor is {options.cursor!r}; give * for the first page, then next_cursor of the page before"
        )
    if options.group_by not in (None, "document"):
        raise RequestError(f"group_by is {options.group_by!r}; give document, or nothing")
    _check_group_size(options)
    mmr = options.mmr
    if mmr is not None and (isinstance(mmr, bool) or not isinstance(mmr, int | float) or not 0 <= mmr <= 1):
        raise RequestError(f"mmr is {mmr!r}; give the weight of relevance, 0 (diversity alone) to 1 (relevance alone)")
    if not are_names(options.facets):
        raise RequestError(f"facets is {options.facets!r}; give a list of fields, ['metadata.team']")
    if len(options.facets) > MAX_FACETS:
        raise RequestError(f"facets has {len(options.facets)} fields; give at most {MAX_FACETS}")
    for field in options.facets:
        _check_facet(field)


def _check_group_size(options: ResultOptions) -> None:
    size = options.group_size
    if size is None:
        return
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_GROUP_SIZE:
        raise RequestError(f"group_size is {size!r}; give 1 to {MAX_GROUP_SIZE} passages")
    if options.group_by is None:
        raise RequestError("group_size is the size of a group; give group_by too, document")


def _check_facet(field: str) -> None:
    first, *keys = field.split(".")
    if field not in FACET_FIELDS and not (first == "metadata" and keys and all(keys)):
        raise RequestError(f"facet {field!r} names no field; use {', '.join(FACET_FIELDS)} or metadata.KEY")
