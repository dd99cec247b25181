"""Looks up the groups of readers.

It uses neither the slots nor the connections of questions, and not the threads of readiness probes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from kosmos_rag.apps.errors import TimedOut
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.engine.directory import DirectoryReader
from kosmos_rag.engine.query_hooks import Membership

_LANES = 4
_LANES_OF_TENANT = 2
"""Lookups of one tenant that run at once: a large directory leaves lanes to the others."""


class DirectoryLookup:
    """Looks up the groups of the readers of requests.

    It caches nothing: a change takes effect at the next question. Several lookups of one reader are not joined, because
    one that began before a change has not seen it. One event loop uses it.
    """

    def __init__(self, open_reader: Callable[[int], DirectoryReader], settings: ServiceSettings) -> None:
        """Open the connections.

        Args:
            open_reader: Opens a reader of the directory with a number of connections.
        """
        self._reader = open_reader(_LANES)
        self._timeout_s = settings.timeout_s
        self._threads = ThreadPoolExecutor(_LANES, thread_name_prefix="kosmos-rag-directory")
        self._of_tenants: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def find(self, tenant: str, subject: str) -> Membership | None:
        """Return the groups of a reader; None where no directory knows the reader. Raises TimedOut, DatabaseError.

        A lookup that has not begun in time does not begin. One that has keeps its lane until its statement ends.
        """
        lanes = self._of_tenants.setdefault(tenant, asyncio.Semaphore(_LANES_OF_TENANT))
        try:
            async with asyncio.timeout(self._timeout_s):
                await lanes.acquire()
                lookup = self._threads.submit(self._reader.find, tenant, subject)
                lookup.add_done_callback(partial(_release, lanes, asyncio.get_running_loop()))
                return await asyncio.wrap_future(lookup)
        except TimeoutError:
            raise TimedOut(
                f"finding the groups of the reader took longer than {self._timeout_s:g} seconds; try again"
            ) from None

    def close(self) -> None:
        """Close the connections. Lookups that run fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._reader.close()


def _release(lanes: asyncio.Semaphore, loop: asyncio.AbstractEventLoop, _: Future[Membership | None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and nobody waits
        loop.call_soon_threadsafe(lanes.release)
