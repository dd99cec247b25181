"""REST client for Confluence and Jira, in Atlassian's cloud and as Data Center."""

import json
import math
import os
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, SourceError
from kosmos_rag.ingestion.sources.fetching import Fetcher, StatusError
from kosmos_rag.ingestion.sources.spec import AtlassianAccess
from kosmos_rag.models.http.retry import parse_retry_after

_WAITS_S = (1.0, 2.0, 4.0, 8.0)
_LONGEST_WAIT_S = 60.0
_NAMES_S = 60.0
_SIGN_IN, _FORBIDDEN = 401, 403
Parameter = str | int | tuple[str, ...]


class AtlassianClient:
    """Reads the REST API of one site. Thread-safe.

    It repeats a request that the server cannot answer for the moment, and waits as long as the server asks.
    """

    def __init__(
        self, access: AtlassianAccess, settings: IngestionSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Prepare requests; nothing is sent yet. Raises ConfigError if the variable is not set.

        Args:
            access: the site and its account.
            settings: allowed hosts and limits.
            sleep: waits between two attempts.
        """
        if not (token := os.environ.get(access.token_env)):
            raise ConfigError(f"{access.token_env} is not set: put a token for {access.url} into that variable")
        credentials = f"{access.user}:{token}".encode()
        authorization = f"Basic {b64encode(credentials).decode()}" if access.user else f"Bearer {token}"
        headers = {"Accept": "application/json", "Authorization": authorization}
        self.identity = (access.url, access.user, token)
        """What decides what the account sees; the token itself is not to be stored."""
        self._fetcher = Fetcher(settings.urls, max_bytes=settings.max_file_bytes, headers=headers)
        self._anonymous = Fetcher(
            settings.urls, max_bytes=settings.max_file_bytes, headers={"Accept": "application/json"}
        )
        self._access = access
        self._names: dict[tuple[str, ...], tuple[float, Any]] = {}
        """When each user or group was asked for, and the answer."""
        self._sleep = sleep

    def get(self, path: str, **parameters: Parameter) -> Any:
        """Return the JSON at a path of the site. Raises SourceError."""
        data = self.download(f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path)
        return self._parse(path, data)

    def query(self, path: str, document: object) -> Any:
        """Send JSON to a path, and return the JSON of the answer. Raises SourceError."""
        url = f"{self._access.url}/{path}"
        return self._parse(path, self._repeat(lambda: self._fetcher.query(url, document)))

    def _parse(self, path: str, data: bytes) -> Any:
        try:
            return json.loads(data)
        except ValueError as error:
            place = f"{self._access.url}/{path}"
            # A site under maintenance answers so too.
            raise SourceError(
                "unavailable", f"{place} is no JSON ({error}); is url the address of the site?"
            ) from error

    def find(self, path: str, **parameters: Parameter) -> Any:
        """Return the JSON at a path; None if it does not exist.

        Raises SourceError, also where the account may not see it.
        """
        try:
            return self.get(path, **parameters)
        except SourceError as error:
            if error.code != "not_found":
                raise
            return None

    def find_shown(self, path: str, **parameters: Parameter) -> Any:
        """Return the JSON at a path; None if the account does not see it.

        Raises SourceError.
        """
        try:
            return self.get(path, **parameters)
        except SourceError as error:
            if not is_hidden(error):
                raise
            return None

    def find_name(self, path: str, **parameters: str) -> Any:
        """Return the JSON of a user or group; None if the account does not see it.

        The answer may be a minute old, as each document of a batch asks for the same ones. Raises SourceError.
        """
        key = path, *parameters.values()
        read_at, answer = self._names.get(key, (-math.inf, None))
        if time.monotonic() - read_at >= _NAMES_S:
            answer = self.find_shown(path, **parameters)
            self._names[key] = time.monotonic(), answer
        return answer

    def list_linked(self, path: str, key: str = "results", **parameters: Parameter) -> Iterator[dict[str, Any]]:
        """Yield the results of all pages; each names the parameters of the next one. Raises SourceError.

        Only the parameters of that link are used: it may name another host.
        """
        following: dict[str, Parameter] = dict(parameters)
        while True:
            page = self.get(path, **following)
            yield from require_list(page, key, path)
            link = (page.get("_links") or {}).get("next")
            if not link:
                return
            previous, following = following, {**following, **dict(parse_qsl(urlsplit(link).query))}
            if previous == following:
                raise SourceError("unavailable", f"{self._access.url}/{path} leads from a page to itself; try again")

    def list_counted(self, path: str, key: str, **parameters: Parameter) -> Iterator[dict[str, Any]]:
        """Yield the results of all pages, by `startAt` and `total` or `isLast`. Raises SourceError."""
        start = 0
        while True:
            page = self.get(path, startAt=start, **parameters)
            results = require_list(page, key, path)
            yield from results
            start += len(results)
            total = page.get("total")
            if page.get("isLast", False) or (total is None and not results) or (total is not None and start >= total):
                return
            if not results:
                raise SourceError("unavailable", f"{path} ends after {start} of {total} results; try again later")

    def list_by_token(self, path: str, key: str, **parameters: Parameter) -> Iterator[dict[str, Any]]:
        """Yield the results of all pages, by `nextPageToken`. Raises SourceError."""
        following: dict[str, Parameter] = dict(parameters)
        while True:
            page = self.get(path, **following)
            yield from require_list(page, key, path)
            token = page.get("nextPageToken")
            if not token and page.get("isLast", True):
                return
            if not token or token == following.get("nextPageToken"):
                raise SourceError("unavailable", f"{path} does not lead to its next page; try again later")
            following = {**parameters, "nextPageToken": token}

    def download(self, path: str) -> bytes:
        """Return what is at a path of the site. Raises SourceError."""
        url = f"{self._access.url}/{path}"
        return self._repeat(lambda: self._fetcher.fetch(url))

    def _repeat(self, request: Callable[[], bytes]) -> bytes:
        """Send a request until the site can answer it. Raises SourceError."""
        for wait_s in (*_WAITS_S, None):
            try:
                return request()
            except SourceError as error:
                if isinstance(error, StatusError) and error.status == _SIGN_IN:
                    raise self.refused_error() from error
                if error.code != "unavailable" or wait_s is None:
                    raise
                asked_s = parse_retry_after(error.retry_after) if isinstance(error, StatusError) else None
                if asked_s is not None and asked_s > _LONGEST_WAIT_S:
                    reason = f"{self._access.url} asks to wait {asked_s:.0f} s"
                    raise SourceError("unavailable", f"{reason}; make the interval of the source longer") from error
                self._sleep(wait_s if asked_s is None else asked_s)
        raise AssertionError("the last attempt returns or raises")

    def is_public(self, path: str) -> bool:
        """Return whether the site shows a path to somebody without an account. Raises SourceError.

        The permission alone does not say so: the site may be closed to them as a whole.
        """
        try:
            return isinstance(json.loads(self._anonymous.fetch(f"{self._access.url}/{path}")), dict)
        except ValueError:  # a page to sign in
            return False
        except SourceError as error:
            if error.code == "unavailable":
                raise
            return False

    def refused_error(self) -> SourceError:
        """Return the error of a token that the site does not accept."""
        access = self._access
        return SourceError("no_permission", f"{one_line(access.url)} refuses the token in {access.token_env}; renew it")


class AtlassianSite(ABC):
    """A site, as a source and its permission feed read it. Thread-safe."""

    kind: str
    """Kind of the source, with which the names of its documents begin."""

    def __init__(self, access: AtlassianAccess, settings: IngestionSettings) -> None:
        """Prepare requests; nothing is sent yet. Raises ConfigError."""
        self.client = AtlassianClient(access, settings)
        self.prefix = f"{self.kind}://{access.name}/"
        """What the names of its documents begin with."""
        self.is_cloud = access.is_cloud

    @abstractmethod
    def require_account(self) -> None:
        """Raise SourceError unless the site answers, and knows the account."""


def is_hidden(error: SourceError) -> bool:
    """Return whether the account may not see what it asked for, or there is nothing.

    The result is False for a token that is refused: then nothing is known.
    """
    return error.code == "not_found" or (isinstance(error, StatusError) and error.status == _FORBIDDEN)


class FormError(SourceError):
    """An answer lacks what it must have; other answers of the site may be right."""


@contextmanager
def translate_form_errors(site: str) -> Iterator[None]:
    """Raise SourceError for an answer of the REST API that lacks what it must have."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = one_line(f"{type(error).__name__}: {error}")
        raise FormError(
            "unavailable", f"{one_line(site)} answers in another form ({reason}); check url and deployment"
        ) from error


def require_list(page: Any, key: str, path: str) -> list[dict[str, Any]]:
    """Return the results of a page.

    Raises SourceError if it has none: a page of another form is not the last one.

    Args:
        page: the JSON that the site has answered with.
        key: the name of the results.
        path: of the request, for messages.
    """
    results = page.get(key) if isinstance(page, dict) else None
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise FormError("unavailable", f"{path} answers without a list of {key}; check url and deployment")
    return results
