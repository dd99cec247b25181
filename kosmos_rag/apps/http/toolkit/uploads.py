"""Receive uploads: stream bodies into the database."""

import asyncio
import contextvars
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from kosmos_rag.apps.errors import Overloaded
from kosmos_rag.apps.http.toolkit.streaming import has_room
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.engine.uploads import CHUNK_BYTES, StoredUpload

P = ParamSpec("P")
R = TypeVar("R")

_THREADS = 2
"""Threads, and connections, that write chunks: a slow client holds neither."""


class Uploads:
    """Receives uploads, at most `service.max_uploads` at once.

    They take no slots of questions. A tenant below its share gets more; see `has_room`. An upload is written in chunks,
    so that it takes a few megabytes of memory whatever its size. One event loop uses it.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._limit = settings.max_uploads
        self._reserved: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kosmos-rag-upload")

    @contextmanager
    def reserve(self, tenant: str) -> Iterator[None]:
        """Reserve a place for one upload. Raises Overloaded at the limit."""
        if not has_room(self._reserved, tenant, self._limit):
            raise Overloaded(f"{self._reserved.total()} of {self._limit} uploads are being received already; try again")
        self._reserved[tenant] += 1
        try:
            yield
        finally:
            self._reserved[tenant] -= 1
            self._reserved = +self._reserved  # without tenants that have none

    async def store(self, tenant: Tenant, body: AsyncIterator[bytes]) -> StoredUpload:
        """Write a body to the database.

        What is written of one that does not end is deleted. Raises DatabaseError.
        """
        writer = tenant.uploads.open()
        buffer = bytearray()
        try:
            async for data in body:
                buffer += data
                while len(buffer) >= CHUNK_BYTES:
                    await self.run(writer.write, bytes(buffer[:CHUNK_BYTES]))
                    del buffer[:CHUNK_BYTES]
            if buffer or not writer.chunks:
                await self.run(writer.write, bytes(buffer))
        except BaseException:
            await self.discard(tenant, writer.id)
            raise
        return writer.finish()

    async def discard(self, tenant: Tenant, upload_id: uuid.UUID) -> None:
        """Delete an upload without a job.

        Where that fails, maintenance deletes it a day later.
        """
        with suppress(KosmosError):
            await asyncio.shield(self.run(tenant.uploads.delete, upload_id))

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a short call in a thread for uploads."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(call, *args, **kwargs)
        )

    def close(self) -> None:
        """Shut down the threads without waiting for them."""
        self._threads.shutdown(wait=False)
