"""A running service over real sockets, and clients of it."""

import asyncio
import contextlib
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kosmos_rag import AsyncEngine, Engine, Settings, Tenant
from kosmos_rag.apps.http.app import create_app
from kosmos_rag.apps.http.toolkit.server import Server
from kosmos_rag.apps.http.toolkit.service import Service, create_service
from tests.integration.variants import changed
from tests.waiting import eventually

ISSUER, AUDIENCE = "https://issuer.test", "kosmos"


class Signer:
    """Signs tokens, and has the public keys that they are checked with."""

    def __init__(self, folder: Path) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.public = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.file = folder / f"keys-{uuid.uuid4().hex}.pem"
        self.file.write_bytes(self.public)

    def claims(self, **claims: Any) -> dict[str, Any]:
        now = int(datetime.now(UTC).timestamp())
        return {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "anna",
            "tenant": "acme",
            "iat": now,
            "exp": now + 300,
        } | claims

    def token(self, **claims: Any) -> str:
        values = {name: value for name, value in self.claims(**claims).items() if value is not None}
        return jwt.encode(values, self.key, algorithm="RS256")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A service that runs, in its own thread, and the tenant whose requests its clients send."""

    url: str
    service: Service
    signer: Signer
    loop: asyncio.AbstractEventLoop
    server: Server
    tenant_name: str = "acme"

    def token(self, **claims: Any) -> str:
        """Return a token of these claims, of the tenant where they name none."""
        return self.signer.token(**{"tenant": self.tenant_name} | claims)

    def tenant(self, **options: Any) -> Tenant:
        """Return the tenant as the library has it."""
        return self.service.engine.sync_engine.tenant(self.tenant_name, **options)

    def client(self, credentials: str | None = None, **claims: Any) -> httpx.Client:
        """Return a client with credentials, or a token of these claims."""
        token = self.token(**claims) if credentials is None else credentials
        headers = {"authorization": f"Bearer {token}"} if token else {}
        # Reading the certificates of all authorities takes 30 ms, and this is plain HTTP.
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False, verify=False)

    def post(self, path: str, body: bytes, *, length: int | None = None) -> socket.socket:
        """Send a request by hand, whose body may end before its `length`, and return the open connection."""
        port = int(self.url.rpartition(":")[2])
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.token()}\r\n"
            f"content-type: application/json\r\ncontent-length: {length or len(body)}\r\n\r\n"
        )
        connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        connection.sendall(head.encode() + body)
        return connection

    def key(
        self, name: str, *scopes: str, tenant_name: str | None = None, principals: tuple[str, ...] = (), **options: Any
    ) -> str:
        """Make a key, of the tenant where none is named."""
        keys = self.service.engine.sync_engine.tenant(tenant_name or self.tenant_name).api_keys
        return keys.create(name, scopes=scopes, principals=principals, **options)


def listen() -> socket.socket:
    """Listen on a free port.

    asyncio sends small parts of an answer at once only where a socket names its protocol, as those it opens itself do.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    return listening


@contextmanager
def serving(engine: Engine, signer: Signer, *, listening: socket.socket | None = None) -> Iterator[Running]:
    """Serve an engine until the block ends; the engine stays open.

    Args:
        listening: socket of an address that is known before; None for a free port.
    """
    shared = AsyncEngine(engine)
    service = create_service(shared)
    server = Server(service, create_app(service))
    listening = listening or listen()
    loop = asyncio.new_event_loop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(server.serve(sockets=[listening]))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=run, name="service")
    thread.start()
    eventually(lambda: server.started)
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield Running(url=url, service=service, signer=signer, loop=loop, server=server)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
        shared._threads.shutdown()


def with_tokens(settings: Settings, signer: Signer, **service: Any) -> Settings:
    """Return settings that take the signer's tokens."""
    mine = {"keys": str(signer.file), "issuer": ISSUER, "audience": AUDIENCE}
    return changed(
        settings,
        {f"service.tokens.{name}": value for name, value in mine.items()}
        | {"service.drain_s": 2.0}
        | {f"service.{name}": value for name, value in service.items()},
    )


def parse_events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Read server-sent events: name and data of each."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, line[6:]


ignored = contextlib.suppress(httpx.HTTPError)
