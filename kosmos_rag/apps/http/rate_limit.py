"""Limits requests a minute by tenant and by subject.

Refused credentials are limited by address. Each process counts for itself.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address, ip_network

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.core.errors import NotAuthenticated, TooManyRequests

_NETWORK_BITS = 64
"""Prefix of an IPv6 address that counts as one client: a client has the whole network."""


class RateLimiter:
    """Counts requests in sliding windows of a minute, in memory."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        rates = settings.rates
        # Without trusted proxies the address may be the load balancer's, and one client must not shut out the others.
        self._trusts_address = bool(settings.trusted_proxies)
        amounts = {
            "tenant": rates.tenant_per_minute,
            "subject": rates.subject_per_minute,
            "address": rates.refused_per_minute,
        }
        self._limits = {
            name: RateLimitItemPerMinute(amount, namespace=name) for name, amount in amounts.items() if amount
        }

    def count(self, identity: Identity) -> None:
        """Count a request. Raises TooManyRequests; a refused request is not counted."""
        keys = {"tenant": (identity.tenant,), "subject": (identity.tenant, identity.subject)}
        counted = [(limit, keys[name]) for name, limit in self._limits.items() if name in keys]
        for limit, key in counted:
            self._require(limit, key)
        for limit, key in counted:
            self._limiter.hit(limit, *key)

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
            self._limiter.hit(limit, *key)
            raise

    def _require(self, limit: RateLimitItem, key: tuple[str, ...]) -> None:
        if self._limiter.test(limit, *key):
            return
        wait = self._limiter.get_window_stats(limit, *key).reset_time - time.time()
        raise TooManyRequests(
            f"the {limit.namespace} has used up its {limit.amount} requests a minute; try again later",
            # At the end of the wait itself the window is still full.
            retry_after_s=max(1, min(60, math.floor(wait) + 1)),
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
