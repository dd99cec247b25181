"""Lookups of readers' groups share four lanes among the tenants."""

import asyncio
import threading

from kosmos_rag.apps.auth.directory_lookup import DirectoryLookup
from kosmos_rag.apps.errors import TimedOut
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.engine.directory import DirectoryReader
from kosmos_rag.engine.query_hooks import Membership

FOUND = Membership(active=True, principals=("group:hr",))


class BlockedReader(DirectoryReader):
    """A directory that answers about the tenant `large` only once it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.running = 0

    def find(self, tenant: str, subject: str) -> Membership | None:
        if tenant == "large":
            self.running += 1
            self.released.wait(60)
        return FOUND

    def close(self) -> None:
        self.released.set()


async def _flood(reader: BlockedReader, timeout_s: float) -> tuple[Membership | None, list[object]]:
    lookup = DirectoryLookup(lambda _: reader, ServiceSettings(timeout_s=timeout_s))
    try:
        flood = [asyncio.create_task(lookup.find("large", f"reader{number}")) for number in range(20)]
        while not reader.running:
            await asyncio.sleep(0.01)
        other = await lookup.find("small", "ann")
        if timeout_s > 10:
            reader.released.set()
        return other, await asyncio.gather(*flood, return_exceptions=True)
    finally:
        lookup.close()


def test_lookups__of_one_tenant_leave_lanes_to_the_others() -> None:
    other, flood = asyncio.run(_flood(BlockedReader(), 60.0))
    assert other == FOUND
    assert flood == [FOUND] * 20


def test_lookups__that_time_out_keep_their_lanes_until_their_statements_end() -> None:
    reader = BlockedReader()
    other, flood = asyncio.run(_flood(reader, 2.0))
    assert other == FOUND
    assert {type(result) for result in flood} == {TimedOut}
    assert reader.running == 2
