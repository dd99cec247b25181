"""Pictures of pages of stored PDF files."""

import hashlib
import threading
import uuid
from collections.abc import Callable

from cachetools import LRUCache

from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.parsing.sandbox.client import render_confined

_CACHED_BYTES = 64 * 2**20

PageKey = tuple[uuid.UUID, uuid.UUID, str, int]
"""Tenant, document, SHA-256 of its file, page. Numbers of versions begin again where a document is deleted."""


class PageImages:
    """Renders pages, and keeps the latest pictures. Thread-safe.

    A caller checks that the reader may read the document before it asks.
    """

    def __init__(self, limits: ParsingSettings) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._cached: LRUCache[PageKey, bytes] = LRUCache(_CACHED_BYTES, getsizeof=len)

    def render(self, key: PageKey, read: Callable[[], bytes | None]) -> bytes | None:
        """Return the picture of a page as a PNG.

        The result is None where the file is not stored. Raises ParseError.

        Args:
            read: reads the file, where the picture is not kept.
        """
        with self._lock:
            if (cached := self._cached.get(key)) is not None:
                return cached
        data = read()
        if data is None:
            return None
        tenant_id, document_id, _, page = key
        picture = render_confined(data, page, self._limits)
        if len(picture) <= _CACHED_BYTES:
            # The document may have another file meanwhile.
            digest = hashlib.sha256(data).hexdigest()
            with self._lock:
                self._cached[tenant_id, document_id, digest, page] = picture
        return picture
