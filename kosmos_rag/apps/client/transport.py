"""Requests, retries and responses, without a socket: shared by both clients."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

from kosmos_rag.apps.errors import ServiceUnreachable, TooManyRequests
from kosmos_rag.apps.problem_details import PROBLEMS, TYPE
from kosmos_rag.core import errors
from kosmos_rag.core.errors import KosmosError, ServiceError

T = TypeVar("T")
Step = httpx.Request | float
"""The next action of a client: send a request, or wait that many seconds."""

MAX_RETRY_AFTER_S = 60
"""A response with a longer Retry-After is not retried."""

_ERRORS = {problem.name: kind for kind, problem in PROBLEMS.items()}
_RETRYABLE = frozenset({429, 503})


def omit_none(**values: Any) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A request of the service."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """Query parameters; None is omitted."""
    body: Mapping[str, Any] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def build(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """Build the httpx request."""
        return http.build_request(
            self.method,
            self.path,
            params={name: value for name, value in self.params.items() if value is not None},
            json=self.body,
            content=self.content,
            headers=dict(self.headers),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Call(Request, Generic[T]):
    """A request and the parser of its response."""

    read: Callable[[Any], T]
    """Builds the result from the JSON body; None for an empty body."""

    def parse(self, response: httpx.Response) -> T:
        """Parse a response.

        Raises ServiceUnreachable where it is not one of this service.
        """
        try:
            return self.read(response.json() if response.content else None)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ServiceUnreachable(
                f"{response.url.copy_with(query=None)} sent a response that this client cannot parse "
                f"({type(error).__name__}: {errors.first_line(error)}); is it a kosmos-rag of this version?"
            ) from error


def retry_steps(request: httpx.Request, *, retries: int) -> Generator[Step, httpx.Response | None, httpx.Response]:
    """Yield requests and waits until a request succeeds; return its response.

    The caller sends the response of each request back. A 429 or 503 with Retry-After is retried `retries` times.
    Raises the error of the problem.
    """
    while True:
        response = yield request
        assert response is not None, "the caller sends the response of a request"
        if response.is_success:
            return response
        wait_s = _wait_s(response)
        if retries == 0 or wait_s is None:
            raise parse_error(response)
        retries -= 1
        yield wait_s


def _wait_s(response: httpx.Response) -> float | None:
    retry_after_s = _retry_after_s(response)
    if response.status_code not in _RETRYABLE or retry_after_s is None or retry_after_s > MAX_RETRY_AFTER_S:
        return None
    return float(retry_after_s)


def _retry_after_s(response: httpx.Response) -> int | None:
    """Return the seconds of the Retry-After header.

    The result is None without one, or for a date.
    """
    header = response.headers.get("retry-after", "")
    return int(header) if header.isdecimal() else None


def parse_error(response: httpx.Response) -> KosmosError:
    """Return the error of an unsuccessful response."""
    try:
        return parse_problem(response.json(), retry_after_s=_retry_after_s(response) or 0)
    except (AttributeError, KeyError, TypeError, ValueError):
        return ServiceUnreachable(
            f"{response.url.copy_with(query=None)} returned {response.status_code} without a problem of a kosmos-rag "
            "service; check the address and the proxies in between"
        )


def parse_problem(payload: Mapping[str, Any], *, retry_after_s: int = 0) -> KosmosError:
    """Return the error of a problem document.

    It has the class that the library raises itself.
    """
    name, detail = str(payload["type"]).removeprefix(TYPE), str(payload["detail"])
    faults = [f"{'.'.join(map(str, fault['location']))}: {fault['message']}" for fault in payload.get("errors", ())]
    message = "; ".join([detail, *faults])
    kind = _ERRORS.get(name, ServiceError)
    if kind is errors.IngestionError:
        return errors.IngestionError(str(payload["code"]), message)
    if issubclass(kind, TooManyRequests | errors.LimitReached):
        return kind(message, retry_after_s=retry_after_s)
    if kind is errors.DatabaseNotReady:
        return errors.DatabaseNotReady([message])
    return kind(message)


@contextmanager
def translate_errors(url: httpx.URL) -> Iterator[None]:
    """Raise transport errors as ServiceUnreachable."""
    try:
        yield
    except httpx.HTTPError as error:
        raise ServiceUnreachable(
            f"no response from {url} ({type(error).__name__}: {errors.first_line(error)}); is the service running?"
        ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[T]):
    """A page of a list."""

    items: tuple[T, ...]
    next: str | None
    """Cursor of the next page; None at the end."""
