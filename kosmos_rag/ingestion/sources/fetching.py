"""HTTP client for untrusted URLs.

It checks hosts and addresses, follows few redirects, and bounds time and size.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException, HTTPResponse, IncompleteRead
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urlsplit

from kosmos_rag.core.config import UrlSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError, first_line
from kosmos_rag.ingestion.sources.addresses import URLS, require_allowed
from kosmos_rag.ingestion.sources.connections import HostConnections
from kosmos_rag.ingestion.sources.files import read_limited
from kosmos_rag.models.http.retry import parse_retry_after

if TYPE_CHECKING:
    import ssl

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_UNCHANGED = 304
_NOT_FOUND = (404, 410)
_FORBIDDEN = (401, 403, 407, 451)
_BUSY = (408, 425, 429)
_BLOCK_BYTES = 65536
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A response of a server."""

    url: str
    """The address after redirects."""
    body: bytes
    media_type: str
    """Without parameters; empty if the server names none."""
    etag: str
    modified: str
    """Last-Modified as the server writes it; empty without one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """How a server answered what was sent to it."""

    status: int
    retry_after_s: float | None
    """Seconds that the server asks to wait; None where it does not."""


class StatusError(SourceError):
    """A server answered with a status that is no success."""

    def __init__(self, code: str, message: str, *, status: int, retry_after: str) -> None:
        super().__init__(code, message)
        self.status = status
        self.retry_after = retry_after
        """Retry-After as the server writes it; empty without one."""


class Fetcher:
    """Fetches URLs within the limits of the settings, and sends to them.

    Proxies of the environment are not used: they would resolve the host.
    """

    def __init__(
        self,
        settings: UrlSettings,
        *,
        max_bytes: int,
        headers: Mapping[str, str] = MappingProxyType({}),
        section: str = URLS,
    ) -> None:
        """Create a fetcher; nothing is sent yet.

        Args:
            settings: allowed hosts and times.
            max_bytes: size above which a body is refused.
            headers: sent to the host of each URL, and to no other that it leads to.
            section: where the settings are, for messages.
        """
        self._settings = settings
        self._section = section
        self._max_bytes = max_bytes
        self._headers = headers
        self._connections: HostConnections | None = None

    @contextmanager
    def keep_connections(self) -> Iterator["Fetcher"]:
        """Return a fetcher for one thread, with one connection to each host."""
        fetcher = copy(self)
        fetcher._connections = self._open_connections()  # noqa: SLF001 — a copy
        try:
            yield fetcher
        finally:
            fetcher._connections.close()  # noqa: SLF001 — a copy

    def _open_connections(self) -> HostConnections:
        return HostConnections(self._settings, self._section, lambda: self._tls)

    @cached_property
    def _tls(self) -> "ssl.SSLContext":
        """The authorities of SSL_CERT_FILE and SSL_CERT_DIR.

        Else those of the HTTP library.
        """
        import httpx

        return httpx.create_ssl_context()

    def fetch(self, url: str) -> bytes:
        """Return the body at a URL. Raises SourceError."""
        response = self.fetch_changed(url)
        assert response is not None, "without validators a server sends the body"
        return response.body

    def fetch_changed(self, url: str, *, etag: str = "", modified: str = "") -> Response | None:
        """Return what is at a URL; None if the server says that it is unchanged.

        Raises SourceError.

        Args:
            url: the address.
            etag: ETag of the response that is known; empty for none.
            modified: Last-Modified of it; empty for none.
        """
        conditions = {
            name: value for name, value in (("If-None-Match", etag), ("If-Modified-Since", modified)) if value
        }

        def read(response: HTTPResponse, at: str) -> Response | None:
            if response.status == _UNCHANGED:
                return None
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise SourceError(
                    "unreadable", f"{url} is compressed although this was not requested; correct the server"
                )
            return Response(
                url=at,
                body=self._read_body(response, url),
                media_type=response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                etag=response.headers.get("etag", ""),
                modified=response.headers.get("last-modified", ""),
            )

        with self._request(url) as (connections, until):
            return self._follow(connections, "GET", url, until, read, conditions)

    def fetch_validators(self, url: str) -> tuple[str, str] | None:
        """Return ETag and Last-Modified of a URL. Raises SourceError.

        The result is None if its server sends neither.
        """

        def read(response: HTTPResponse, _at: str) -> tuple[str, str] | None:
            values = response.headers.get("etag", ""), response.headers.get("last-modified", "")
            return values if any(values) else None

        with self._request(url) as (connections, until):
            try:
                if values := self._follow(connections, "HEAD", url, until, read):
                    return values
            except SourceError as error:
                if error.code == "refused":
                    raise
            return self._follow(connections, "GET", url, until, read)  # some servers know no HEAD

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Receipt:
        """Send a body to a URL, and return how its server answered. Raises SourceError.

        Redirects are not followed, and the body of the answer is not read.

        Args:
            url: the address.
            body: what is sent.
            headers: of the request; the length is added.
        """
        with self._post(url, body, headers) as response:
            retry_after_s = parse_retry_after(response.headers.get("retry-after", ""))
            return Receipt(status=response.status, retry_after_s=retry_after_s)

    def query(self, url: str, document: object) -> bytes:
        """Send JSON to a URL, and return the body of the answer. Raises SourceError.

        Redirects are not followed.
        """
        body = json.dumps(document).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        with self._post(url, body, headers) as response:
            _require_success(url, response.status, response.headers.get("retry-after", ""))
            return self._read_body(response, url)

    def submit(self, url: str, fields: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a form to a URL, and return status and body of the answer. Raises SourceError.

        Redirects are not followed.
        """
        form = urlencode(fields).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        with self._post(url, form, headers) as response:
            return response.status, self._read_body(response, url)

    def _read_body(self, response: HTTPResponse, url: str) -> bytes:
        return read_limited(_read_blocks(response), url, max_bytes=self._max_bytes)

    @contextmanager
    def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
        with (
            self._request(url) as (connections, until),
            connections.send("POST", url, until, headers, body) as response,
        ):
            yield response

    @contextmanager
    def _request(self, url: str) -> Iterator[tuple[HostConnections, float]]:
        """Yield connections, and the time by which all steps of a request must have ended."""
        connections = self._connections or self._open_connections()
        try:
            yield connections, time.monotonic() + self._settings.timeout_s
        except TimeoutError as error:
            limit = f"{self._settings.timeout_s:g} s"
            raise SourceError(
                "unavailable", f"{url} did not answer within {limit}; raise {self._section}.timeout_s"
            ) from error
        except (OSError, HTTPException) as error:
            reason = one_line(first_line(error))
            raise SourceError("unavailable", f"{url} cannot be reached: {reason}; try again later") from error
        finally:
            if connections is not self._connections:
                connections.close()

    def _follow(
        self,
        connections: HostConnections,
        method: str,
        url: str,
        until: float,
        read: Callable[[HTTPResponse, str], _T],
        conditions: Mapping[str, str] = MappingProxyType({}),
    ) -> _T:
        """Send a request, follow redirects with all checks, and read the response.

        Cookies of a redirect are sent to where they belong until its end: many pages ask for one before they answer.
        """
        import httpx

        cookies = httpx.Cookies()
        at = place = url  # messages name the place: the address after a redirect may have a signature
        for _ in range(MAX_REDIRECTS + 1):
            headers = self._headers if at == url or _origin(at) == _origin(url) else {}
            request = httpx.Request(method, at, cookies=cookies) if cookies else None
            if request is not None and "cookie" in request.headers:
                headers = {"Cookie": request.headers["cookie"], **headers}
            with connections.send(method, at, until, {**headers, **conditions}) as response:
                if response.status == _UNCHANGED and conditions:
                    return read(response, at)
                if response.status not in _REDIRECTS or "location" not in response.headers:
                    _require_success(place, response.status, response.headers.get("retry-after", ""))
                    return read(response, at)
                following = _redirect_target(at, place, _decode(response.headers["location"]))
                lines = response.headers.get_all("set-cookie", [])
                set_cookies = [(b"set-cookie", line.encode("latin-1")) for line in lines]
                request = request or httpx.Request(method, at)
                cookies.extract_cookies(httpx.Response(response.status, headers=set_cookies, request=request))
            target = _without_query(following)
            if at.startswith("https:") and not following.startswith("https:"):
                raise SourceError("refused", f"{place} leads from https to {target}; give the address it should have")
            at, place = following, target
        raise SourceError("refused", f"{url} leads through more than {MAX_REDIRECTS} redirects; give the last address")


def check_url(url: str) -> str:
    """Return a URL if it is valid for HTTP, without credentials.

    Raises ValueError with the fault.
    """
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"it is no valid address ({error})") from None
    if parsed.scheme not in ("http", "https") or not parsed.raw_host:
        raise ValueError("it must begin with http:// or https:// and name a host")
    if parsed.userinfo:
        raise ValueError("it must not contain a user or password, because it is stored")
    if parsed.port is not None and not 0 < parsed.port < 2**16:
        raise ValueError(f"its port is {parsed.port}; a port is 1 to 65535")
    return url


def require_allowed_host(url: str, settings: UrlSettings, section: str) -> None:
    """Raise SourceError where the host of a URL is not allowed; no address is looked up.

    Args:
        section: where the settings are, for messages.
    """
    import httpx

    require_allowed(httpx.URL(url).raw_host.decode("ascii"), settings, section)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port


def _without_query(url: str) -> str:
    return urlsplit(url)._replace(query="", fragment="").geturl()


def _decode(value: str) -> str:
    """Return a header of UTF-8, which the HTTP library reads as Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _redirect_target(at: str, place: str, location: str) -> str:
    """Return the address that a response leads to.

    Raises SourceError.

    Args:
        at: address of the response.
        place: its name in messages.
        location: header of the response.
    """
    import httpx

    try:
        return check_url(str(httpx.URL(at).join(location).copy_with(fragment=None)))
    except (httpx.InvalidURL, ValueError) as error:
        target = one_line(re.sub("//[^/]*@", "//", re.split("[?#]", location)[0])[:200])
        raise SourceError(
            "refused", f"{place} leads to {target!r}: {error}; give the address it should have"
        ) from error


def _require_success(url: str, status: int, retry_after: str) -> None:
    if 200 <= status < 300:
        return
    answer = f"the server answered {status}"
    if status in _NOT_FOUND:
        code, message = "not_found", f"{url} does not exist ({answer}); check the address"
    elif status in _FORBIDDEN:
        code, message = "no_permission", f"{url} may not be read ({answer}); let the server serve it"
    elif status in _BUSY or status >= 500:
        code, message = "unavailable", f"{url} cannot be read now ({answer}); try again later"
    else:
        code, message = "unreadable", f"{url} cannot be read ({answer}); check the address"
    raise StatusError(code, message, status=status, retry_after=retry_after)


def _read_blocks(response: HTTPResponse) -> Iterator[bytes]:
    while block := response.read1(_BLOCK_BYTES):
        yield block
    if response.length:
        raise IncompleteRead(b"", response.length)
