"""An MCP server over real sockets, and the SDK's own client of it."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from kosmos_rag import AsyncEngine, Engine, Tenant
from kosmos_rag.apps.http.toolkit.server import Server
from kosmos_rag.apps.mcp.http import PATH, create_app, create_server, create_service
from tests.integration.apps.http.serving import Signer, listen
from tests.waiting import eventually


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that runs, in its own thread, and the tenant whose calls its clients send."""

    url: str
    engine: Engine
    signer: Signer
    tenant_name: str = "acme"

    @property
    def other_name(self) -> str:
        """Return the name of the other tenant that has a document."""
        return f"{self.tenant_name}-other"

    def tenant(self, **options: Any) -> Tenant:
        """Return the tenant as the library has it."""
        return self.engine.tenant(self.tenant_name, **options)

    def token(self, **claims: Any) -> str:
        """Return a token of these claims, of the tenant where they name none."""
        return self.signer.token(**{"tenant": self.tenant_name} | claims)

    @asynccontextmanager
    async def client(
        self, credentials: str | None = None, *, mode: str = "auto", **claims: Any
    ) -> AsyncIterator[Client]:
        """Connect with credentials, or a token of these claims."""
        token = self.token(**claims) if credentials is None else credentials
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as connected,
        ):
            yield connected

    def call(self, tool: str, arguments: dict[str, Any], **how: Any) -> CallToolResult:
        """Call one tool."""

        async def call() -> CallToolResult:
            async with self.client(**how) as client:
                return await client.call_tool(tool, arguments)

        return asyncio.run(call())


@contextmanager
def serving(engine: Engine, signer: Signer, listening: socket.socket | None = None) -> Iterator[Running]:
    """Serve an engine until the block ends; the engine stays open."""
    shared = AsyncEngine(engine)
    service = create_service(shared)
    protocol = create_server(service)
    server = Server(service, create_app(service, protocol))
    listening = listen() if listening is None else listening

    async def serve() -> None:
        async with protocol.session_manager.run():
            await server.serve(sockets=[listening])

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="mcp")
    thread.start()
    eventually(lambda: server.started)
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}{PATH}"
        yield Running(url=url, engine=engine, signer=signer)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
        shared._threads.shutdown()


def read_data(result: CallToolResult) -> dict[str, Any]:
    """Return what a call gave, where it did not fail."""
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


def read_error(result: CallToolResult) -> str:
    """Return the message of a call that failed."""
    assert result.is_error, result
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
