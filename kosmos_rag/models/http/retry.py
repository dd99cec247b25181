"""Retries of requests to model servers, within a deadline."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from kosmos_rag.core.errors import ModelError

T = TypeVar("T")
_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 8.0


class Retry(Exception):
    """A request failed in a way that may pass."""

    def __init__(self, error: ModelError, *, after_s: float = 0.0) -> None:
        """Store the error of a failed request.

        Args:
            error: raised if nothing is tried again.
            after_s: seconds that the server asks to wait.
        """
        super().__init__(str(error))
        self.error = error
        self.after_s = after_s


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Which failures are tried again, and how often."""

    attempts: int
    """Requests in all."""
    statuses: frozenset[int]
    """HTTP statuses after which another request may succeed."""


async def request_with_retry(request: Callable[[], Awaitable[T]], policy: RetryPolicy, *, until: float) -> T:
    """Await a request, and repeat it while it raises `Retry`.

    The pause doubles, with jitter, and is at least what the server asks for. A pause that would pass the deadline is
    not begun: the error is raised at once.

    Args:
        request: Sends one request.
        policy: Number of requests.
        until: Deadline on the clock of the event loop, in seconds.

    Raises:
        ModelError: The error of the last failure.
    """
    for attempt in range(policy.attempts):
        try:
            return await request()
        except Retry as failure:
            backoff_s = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2**attempt) * random.uniform(0.75, 1.25)  # noqa: S311
            delay_s = max(failure.after_s, backoff_s)
            if attempt + 1 == policy.attempts or asyncio.get_running_loop().time() + delay_s >= until:
                raise failure.error from failure.__cause__
            await asyncio.sleep(delay_s)
    raise AssertionError("the last attempt returns or raises")


def parse_retry_after(text: str, now: datetime | None = None) -> float | None:
    """Return the seconds of a `Retry-After` header; None without a number or date.

    Source: RFC 9110, section 10.2.3. Servers send any number, so callers have a limit of their own.
    """
    text = text.strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        seconds = (at.replace(tzinfo=at.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
    # "inf" and "nan" are floats of Python; a number of hundreds of digits is one that a server may send.
    return max(0.0, seconds) if math.isfinite(seconds) or text.isdecimal() else None
