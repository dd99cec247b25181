"""Limits requests a minute by tenant and by subject.

Refused credentials are limited by address. Each process counts for itself.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TypeAlias

from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.errors import NotAuthenticated, SignInUnavailable, TooManyRequests
from kosmos_rag.core.config import ServiceSettings

_NETWORK_BITS = 64
"""Prefix of an IPv6 address that counts as one client: a client has the whole network."""
_WINDOW_S = 60

Key: TypeAlias = tuple[str, ...]
"""What requests are counted by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """Requests a minute of one kind of key."""

    name: str
    amount: int


class SlidingWindowCounter:
    """Counts the requests of the last minute by key. Thread-safe.

    The count is that of the present window, and the share of the window before that the last minute still covers. So a
    key needs two numbers, and those of old windows are dropped together. Source: the sliding window counter of Desgats,
    "How we built rate limiting capable of scaling to millions of domains" (Cloudflare, 2017).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._window = 0
        self._current: Counter[Key] = Counter()
        self._previous: Counter[Key] = Counter()

    def add(self, key: Key) -> None:
        """Count a request."""
        with self._lock:
            self._advance()
            self._current[key] += 1

    def wait_s(self, key: Key, amount: int) -> float | None:
        """Return the seconds until the count is below an amount.

        The result is None if it is now.

        Args:
            amount: Requests that the last minute may have.
        """
        with self._lock:
            elapsed = self._advance()
            current, previous = self._current[key], self._previous[key]
        if previous * (_WINDOW_S - elapsed) / _WINDOW_S + current < amount:
            return None
        if current < amount:
            return _WINDOW_S * (1 - (amount - current) / previous) - elapsed
        # In the next window, the present one is the one before.
        return _WINDOW_S - elapsed + _WINDOW_S * (1 - amount / current)

    def _advance(self) -> float:
        """Begin the window of now, and return the seconds since its beginning."""
        window, elapsed = divmod(time.monotonic(), _WINDOW_S)
        if window != self._window:
            self._previous = self._current if window == self._window + 1 else Counter()
            self._current = Counter()
            self._window = int(window)
        return elapsed


class RateLimiter:
    """Counts requests in sliding windows of a minute, in memory."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._counter = SlidingWindowCounter()
        rates = settings.rates
        # Without trusted proxies the address may be the load balancer's, and one client must not shut out the others.
        self._trusts_address = bool(settings.trusted_proxies)
        amounts = {
            "tenant": rates.tenant_per_minute,
            "subject": rates.subject_per_minute,
            "address": rates.refused_per_minute,
        }
        self._limits = {name: Limit(name=name, amount=amount) for name, amount in amounts.items() if amount}

    def count(self, identity: Identity) -> None:
        """Count a request. Raises TooManyRequests; a refused request is not counted."""
        keys = {"tenant": (identity.tenant,), "subject": (identity.tenant, identity.subject)}
        counters = [(limit, keys[name]) for name, limit in self._limits.items() if name in keys]
        for limit, key in counters:
            self._require(limit, key)
        for limit, key in counters:
            self._counter.add((limit.name, *key))

    @contextmanager
    def count_refused_credentials(
        self, address: str | None, *, anonymous: bool = False, needs_lookup: bool = True
    ) -> Iterator[None]:
        """Count NotAuthenticated errors of the block by client address.

        Args:
            address: the client's address; None is not counted.
            anonymous: the request has no credentials. Without `service.trusted_proxies` it counts apart: it must not
                shut out clients with credentials behind the same balancer.
            needs_lookup: the credentials can only be verified by a query.

        Raises:
            TooManyRequests: the address is over its limit. Without `service.trusted_proxies` the block runs first
                unless the credentials need a lookup or are missing: the address may be that of other clients too.
        """
        limit = self._limits.get("address")
        if limit is None or address is None:
            yield
            return
        apart = anonymous and not self._trusts_address
        key = (_address_key(address), *(["anonymous"] if apart else []))
        if self._trusts_address or needs_lookup or anonymous:
            self._require(limit, key)
        try:
            yield
        except NotAuthenticated:
            self._require(limit, key)
            self._counter.add((limit.name, *key))
            raise

    @contextmanager
    def count_failed_sign_ins(self, address: str | None) -> Iterator[None]:
        """Count sign-ins that the identity provider refused, or could not answer, by client address.

        They count apart from refused credentials. Raises TooManyRequests before the block runs.

        Args:
            address: the client's address; None is not counted.
        """
        limit = self._limits.get("address")
        if limit is None or address is None:
            yield
            return
        key = (_address_key(address), "sign-in")
        self._require(limit, key)
        try:
            yield
        except (NotAuthenticated, SignInUnavailable):
            self._counter.add((limit.name, *key))
            raise

    def _require(self, limit: Limit, key: Key) -> None:
        wait_s = self._counter.wait_s((limit.name, *key), limit.amount)
        if wait_s is None:
            return
        raise TooManyRequests(
            f"the {limit.name} has used up its {limit.amount} requests a minute; try again later",
            # At the end of the wait itself the window is still full.
            retry_after_s=max(1, min(_WINDOW_S, math.floor(wait_s) + 1)),
        )


def _address_key(address: str) -> str:
    """Return the key that an address is counted by.

    A proxy may send a malformed address.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:100]
    return str(ip_network((address, _NETWORK_BITS), strict=False)) if isinstance(parsed, IPv6Address) else str(parsed)
