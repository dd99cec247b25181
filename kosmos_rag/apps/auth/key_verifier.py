"""Verifies API keys, with a short cache.

It uses neither the slots nor the connections of questions.
"""

import asyncio
import hmac
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cachetools import LRUCache

from kosmos_rag.apps.errors import TimedOut
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.engine.api_keys import ApiKey, KeyReader, ParsedKey, StoredKey

_MAX_ENTRIES = 10_000
"""Cached keys, and as many ids without a valid key: made-up ids do not displace keys."""
_LANES = 2

_KeyId = tuple[uuid.UUID, uuid.UUID]
"""Tenant and key."""


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A stored key and the time of its lookup by `time.monotonic`."""

    stored: StoredKey | None
    read_at: float

    def matches(self, key: ParsedKey) -> bool:
        return self.stored is not None and hmac.compare_digest(self.stored.secret_sha256, key.secret_sha256)


class KeyVerifier:
    """Verifies the keys of requests.

    A lookup is cached for `service.key_cache_s`: a revoked key works for as long.

    Keys that were valid before have a thread and a connection of their own, so that a flood of made-up keys does not
    delay them. One event loop uses it.
    """

    def __init__(self, open_reader: Callable[[int], KeyReader], settings: ServiceSettings) -> None:
        """Open the connections.

        Args:
            open_reader: Opens a reader of keys with a number of connections.
        """
        self._reader = open_reader(_LANES)
        self._cache_s, self._timeout_s = settings.key_cache_s, settings.timeout_s
        self._valid: LRUCache[_KeyId, _Lookup] = LRUCache(_MAX_ENTRIES)
        self._invalid: LRUCache[_KeyId, _Lookup] = LRUCache(_MAX_ENTRIES)
        self._running: dict[_KeyId, asyncio.Task[_Lookup]] = {}
        self._threads = {
            is_known: ThreadPoolExecutor(1, thread_name_prefix="kosmos-rag-keys") for is_known in (True, False)
        }

    def is_known(self, key: ParsedKey) -> bool:
        """Whether a key was valid at its last lookup, however long ago."""
        lookup = self._valid.get(_id(key))
        return lookup is not None and lookup.matches(key)

    async def verify(self, key: ParsedKey) -> ApiKey | None:
        """Return the stored key.

        Returns None where it is unknown, revoked, expired, or has another secret.

        Raises TimedOut, DatabaseError.
        """
        lookup = self._valid.get(_id(key)) or self._invalid.get(_id(key))
        if lookup is None or time.monotonic() - lookup.read_at >= self._cache_s:
            lookup = await self._refresh(key)
        return lookup.stored.key if lookup.stored is not None and lookup.matches(key) else None

    async def _refresh(self, key: ParsedKey) -> _Lookup:
        if (task := self._running.get(_id(key))) is None:  # concurrent requests share one lookup
            task = self._running[_id(key)] = asyncio.create_task(self._read(key))
            task.add_done_callback(lambda future: self._end(key, future))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(task)
        except TimeoutError:
            raise TimedOut(f"verifying the key took longer than {self._timeout_s:g} seconds; try again") from None

    def _end(self, key: ParsedKey, task: asyncio.Task[_Lookup]) -> None:
        del self._running[_id(key)]
        if not task.cancelled():
            task.exception()  # it is no surprise where no request waits for it any more

    async def _read(self, key: ParsedKey) -> _Lookup:
        thread = self._threads[self.is_known(key)]
        began = time.monotonic()
        stored = await asyncio.get_running_loop().run_in_executor(thread, self._reader.find, key)
        lookup = _Lookup(stored, began)
        into, other = (self._invalid, self._valid) if stored is None else (self._valid, self._invalid)
        into[_id(key)] = lookup
        other.pop(_id(key), None)
        return lookup

    def close(self) -> None:
        """Close the connections. Lookups that run fail."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)
        self._reader.close()


def _id(key: ParsedKey) -> _KeyId:
    return key.tenant.id, key.id
