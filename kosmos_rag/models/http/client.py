"""JSON requests to a model server, within limits of time and size."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kosmos_rag.models.http.background import BackgroundLoop
from kosmos_rag.models.http.endpoint import Endpoint
from kosmos_rag.models.http.retry import Retry, RetryPolicy, parse_retry_after, request_with_retry

if TYPE_CHECKING:
    import httpx

# A request has no effect on the server, so that it may be repeated after any failure of the server.
_RETRY = RetryPolicy(attempts=5, statuses=frozenset({408, 429, 500, 502, 503, 504}))
_MAX_ERROR_BYTES = 10_000

Parse = Callable[[Any], Any]
"""Reads a response of a protocol. Raises LookupError, TypeError, ValueError or AttributeError if it is malformed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestLimits:
    """Limits of one request."""

    timeout_s: float
    """Seconds until the response must be complete, retries included."""
    timeout_key: str
    """Key of the configuration that sets it, for the message."""
    max_bytes: int
    """Maximum size of the response."""


class ModelServer:
    """Sends JSON to one endpoint and reads JSON. Thread-safe.

    `close` cancels all requests and closes the connections.
    """

    def __init__(self, endpoint: Endpoint, *, concurrency: int) -> None:
        """Prepare the client; nothing is sent yet.

        Args:
            endpoint: Address and key.
            concurrency: Requests of `post_all` that are sent at once.
        """
        import httpx

        self.endpoint = endpoint
        # Redirects are not followed: they would take the key and the texts to another server.
        pool = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._client = httpx.AsyncClient(headers=endpoint.headers, limits=pool)
        self._background = BackgroundLoop()
        self._slots = asyncio.Semaphore(concurrency)  # belongs to the loop of its first use

    def post(self, body: object, parse: Parse, limits: RequestLimits) -> Any:
        """Send one request at once and return the parsed response.

        Args:
            body: Content of the request.
            parse: Reads the response.
            limits: Time and size.

        Raises:
            ModelUnavailable: The server cannot be reached, is late or busy, or refuses key or model.
            ModelError: It fails, refuses the content, or answers what is not of the protocol.
        """
        return self._background.run(self._post(body, parse, limits))

    def post_all(self, bodies: Sequence[object], parse: Parse, limits: RequestLimits) -> list[Any]:
        """Send several requests and return the parsed responses in order.

        Up to `concurrency` of them are sent at once. The first failure cancels the others.

        Args:
            bodies: Contents of the requests.
            parse: Reads a response.
            limits: Time, from when a request is sent, and size of each.

        Raises as `post` does.
        """
        return self._background.run(self._post_all(bodies, parse, limits))

    def close(self) -> None:
        """Cancel all requests and close the connections."""
        self._background.close(self._client.aclose)

    async def _post_all(self, bodies: Sequence[object], parse: Parse, limits: RequestLimits) -> list[Any]:
        async def post(body: object) -> Any:
            async with self._slots:
                return await self._post(body, parse, limits)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(post(body)) for body in bodies]
        except ExceptionGroup as failures:
            # Not `except*`: some versions of Python 3.11 put what it raises into a group again.
            error: Exception = failures
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            raise error from None
        return [task.result() for task in tasks]

    async def _post(self, body: object, parse: Parse, limits: RequestLimits) -> Any:
        until = asyncio.get_running_loop().time() + limits.timeout_s
        try:
            async with asyncio.timeout_at(until):
                content = await request_with_retry(lambda: self._request(body, limits.max_bytes), _RETRY, until=until)
        except TimeoutError:
            raise self.endpoint.unavailable(
                f"gave no answer within {limits.timeout_s:g} s: give it more resources, or raise {limits.timeout_key}"
            ) from None
        return self._parse(content, parse)

    async def _request(self, body: object, max_bytes: int) -> bytes:
        import httpx

        try:
            async with self._client.stream("POST", self.endpoint.url, json=body, timeout=None) as response:
                if response.status_code != 200:
                    refusal = self.endpoint.refusal(response.status_code, await read_start(response, _MAX_ERROR_BYTES))
                    if response.status_code in _RETRY.statuses:
                        raise Retry(refusal, after_s=parse_retry_after(response.headers.get("retry-after", "")) or 0.0)
                    raise refusal
                content = await read_start(response, max_bytes)
        except httpx.TransportError as error:
            raise Retry(self.endpoint.unreachable(error)) from error
        except httpx.DecodingError as error:
            raise self.endpoint.unreadable(error) from error
        if len(content) > max_bytes:
            raise self.endpoint.error(f"sent more than {max_bytes} bytes: correct {self.endpoint.section}.url")
        return content

    def _parse(self, content: bytes, parse: Parse) -> Any:
        try:
            return parse(json.loads(content))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            section, start = self.endpoint.section, self.endpoint.excerpt(content[:1000].decode(errors="replace"))
            raise self.endpoint.error(
                f"sent a response that is not of the protocol ({start}): correct {section}.protocol or {section}.url"
            ) from None


async def read_start(response: "httpx.Response", limit: int) -> bytes:
    """Read a response until its end or a little beyond the limit."""
    parts, size = [], 0
    async for data in response.aiter_bytes():
        parts.append(data)
        size += len(data)
        if size > limit:
            break
    return b"".join(parts)
