"""How a request is sent, sent again, and how its answer is understood: without a socket, for both clients."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

from kosmos_rag.core import errors
from kosmos_rag.core.errors import KosmosError, ServiceError, ServiceUnreachable
from kosmos_rag.core.problem_details import PROBLEMS, TYPE

T = TypeVar("T")
Step = httpx.Request | float
"""What a client is to do next: send a request, or wait so many seconds."""

LONGEST_WAIT_S = 60
"""A service that asks for more patience is not asked again."""

_ERRORS = {problem.name: kind for kind, problem in PROBLEMS.items()}
_TRIED_AGAIN = frozenset({429, 503})


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What is sent."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """Those that are None are left out."""
    body: Mapping[str, Any] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def built(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """Return it as a client of httpx sends it."""
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
    """What is sent, and what its answer is read as."""

    read: Callable[[Any], T]

    def result(self, response: httpx.Response) -> T:
        """Return what a response says. Raises ServiceUnreachable where it is not what a service of ours says."""
        try:
            return self.read(response.json() if response.content else None)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ServiceUnreachable(
                f"{response.url.copy_with(query=None)} answered what this client does not understand "
                f"({type(error).__name__}: {errors.first_line(error)}); is it a kosmos-rag of this version?"
            ) from error


def attempts(request: httpx.Request, *, retries: int) -> Generator[Step, httpx.Response | None, httpx.Response]:
    """Yield what is to be done until a response is there that counts, and return that.

    A 429 or 503 that says when to come again is tried again then, `retries` times. Raises the error of a problem.
    """
    while True:
        response = yield request
        assert response is not None, "a request was to be sent"
        if response.is_success:
            return response
        wait_s = _wait_s(response)
        if retries == 0 or wait_s is None:
            raise error_of(response)
        retries -= 1
        yield wait_s


def _wait_s(response: httpx.Response) -> float | None:
    asked_s = _asked_s(response)
    if response.status_code not in _TRIED_AGAIN or asked_s is None or asked_s > LONGEST_WAIT_S:
        return None
    return float(asked_s)


def _asked_s(response: httpx.Response) -> int | None:
    """Return the seconds of patience that are asked for. A date may stand there too; the service writes none."""
    asked = response.headers.get("retry-after", "")
    return int(asked) if asked.isdecimal() else None


def error_of(response: httpx.Response) -> KosmosError:
    """Return the error that a service tells of."""
    try:
        return error_of_problem(response.json(), retry_after_s=_asked_s(response) or 0)
    except (AttributeError, KeyError, TypeError, ValueError):
        return ServiceUnreachable(
            f"{response.url.copy_with(query=None)} answered {response.status_code} and no problem of a kosmos-rag "
            "service; check the address, and what stands between"
        )


def error_of_problem(told: Mapping[str, Any], *, retry_after_s: int = 0) -> KosmosError:
    """Return the error that a problem's document is of: the class that the library itself raises."""
    name, detail = str(told["type"]).removeprefix(TYPE), str(told["detail"])
    faults = [f"{'.'.join(map(str, fault['location']))}: {fault['message']}" for fault in told.get("errors", ())]
    message = "; ".join([detail, *faults])
    kind = _ERRORS.get(name, ServiceError)
    if kind is errors.IngestionError:
        return errors.IngestionError(str(told["code"]), message)
    if kind is errors.TooManyRequests:
        return errors.TooManyRequests(message, retry_after_s=retry_after_s)
    if kind is errors.DatabaseNotReady:
        return errors.DatabaseNotReady([message])
    return kind(message)


@contextmanager
def reached(url: httpx.URL) -> Iterator[None]:
    """Raise what goes wrong on the way as ServiceUnreachable."""
    try:
        yield
    except httpx.HTTPError as error:
        raise ServiceUnreachable(
            f"no answer from {url} ({type(error).__name__}: {errors.first_line(error)}); is the service there?"
        ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[T]):
    """A part of a list."""

    items: tuple[T, ...]
    next: str | None
    """The cursor of the page after; None at the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grounding:
    """The part of the schemas that a question needs; mappings have the names of docs/schema.md."""

    question: str
    database: str | None
    """The likeliest one; None where there is no table."""
    prompt: str
    """The block of a prompt that says it."""
    tokens: int
    tables: tuple[Mapping[str, Any], ...]
    """Of all databases, best first: database, table, score, parts."""
    schema_refs: tuple[Mapping[str, Any], ...]
    """Columns, best first: name, database, table, model, column, score, parts."""
    join_hints: tuple[str, ...]
    entities: Mapping[str, Any]
    selection: Mapping[str, Any] | None
    """Tables, columns, joins, ambiguities and recipes."""
    left_out: tuple[tuple[str, str], ...]
    """Database and name of tables that the budget of the prompt had no room for."""
    docs: tuple[Mapping[str, Any], ...]
    """The documents found, best first: id, kind, and scores where they were asked for."""
    warnings: tuple[str, ...]
    milliseconds: float
