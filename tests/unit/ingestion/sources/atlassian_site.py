"""A site of Confluence or Jira for tests, by what the documentation of their REST APIs says."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

TOKEN = "s3cret-token"

Parameters = Mapping[str, Sequence[str]]


class NotFound(Exception):
    """The site has nothing there."""


class Refused(Exception):
    """The site answers with a status and headers instead."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(status)
        self.status, self.headers = status, headers


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True
    server: "_Server"

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_GET(self) -> None:
        self._answer(parse_qs(urlsplit(self.path).query))

    def _answer(self, parameters: Parameters) -> None:
        site = self.server.site
        parts = urlsplit(self.path)
        site.requests.append(self.path)
        try:
            is_signed_in = self._check_token(site)
            for fault in site.faults:
                fault(parts.path, parameters)
            reply = site.answer(unquote(parts.path), parameters, is_signed_in)
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self._send(200, data)
        except NotFound:
            self._send(404, b'{"statusCode": 404}')
        except Refused as error:
            self._send(error.status, b"{}", **error.headers)

    def _check_token(self, site: "Site") -> bool:
        header = self.headers.get("Authorization")
        if header is None:
            return False
        if header != f"Bearer {site.token}":
            raise Refused(401)
        return True

    def _send(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — as the base class has it
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    site: "Site"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@dataclass(kw_only=True)
class Site:
    """A site with people and faults; a subclass has what it answers."""

    is_cloud: bool = False
    token: str = TOKEN
    is_public: bool = False
    """Whether it lets people in without an account."""
    max_results: int = 3
    """Results of a page, whatever a request asks for."""
    groups: dict[str, set[str]] = field(default_factory=dict)
    """Names of the members by group."""
    hidden_emails: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    faults: list[Callable[[str, Parameters], None]] = field(default_factory=list)
    now_s: float = 0.0
    """Seconds by which the clock of the site is ahead."""
    port: int = 0
    base: str = ""
    """What the paths of its interfaces begin with."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base}"

    @contextmanager
    def serve(self) -> Iterator[Self]:
        """Serve until the end of the block."""
        server = _Server(("127.0.0.1", 0), _Handler)
        server.site = self
        self.port = int(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, path: str, parameters: Parameters, is_signed_in: bool) -> Any:
        """Return the answer to a request. Raises NotFound, Refused."""
        for pattern, method in self.routes.items():
            if match := re.fullmatch(f"{self.base}/{pattern}", path):
                if not is_signed_in and not self.is_public:
                    raise Refused(401)
                return getattr(self, method)(*match.groups(), parameters=parameters)
        raise NotFound

    routes: Mapping[str, str] = field(default_factory=dict)

    def now(self) -> float:
        return time.time() + self.now_s

    def user(self, name: str) -> dict[str, Any]:
        if not self.is_cloud:
            return {"type": "known", "username": name, "name": name, "userKey": f"key-{name}", "displayName": name}
        email = "" if name in self.hidden_emails else f"{name}@example.org"
        fields = {"type": "known", "accountId": f"5b10:{name}", "displayName": name}
        return {**fields, "email": email, "emailAddress": email} if email else {**fields, "email": ""}

    def group(self, name: str) -> dict[str, Any]:
        ids = {"id": f"id-{name}", "groupId": f"id-{name}"} if self.is_cloud else {}
        return {"type": "group", "name": name, **ids}

    def principal(self, name: str) -> str:
        return f"user:{name}@example.org" if self.is_cloud else f"user:{name}"


def fail(path: str, *, times: int = 1_000_000, status: int = 503, **headers: str) -> Callable[[str, Parameters], None]:
    """Return a fault: some requests whose path or query matches fail, then they succeed."""
    left = [times]

    def check(at: str, parameters: Parameters) -> None:
        if left[0] > 0 and re.search(path, f"{at}?{urlencode(parameters, doseq=True)}"):
            left[0] -= 1
            raise Refused(status, **headers)

    return check
