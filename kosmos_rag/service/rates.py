"""Rates: how much one tenant, and one subject of it, may ask in a minute, in this process."""

import math
import time

from kosmos_rag.config import RateSettings
from kosmos_rag.errors import TooManyRequests
from kosmos_rag.service.identity import Identity


class Rates:
    """Counts requests in sliding windows of a minute, in memory."""

    def __init__(self, settings: RateSettings) -> None:
        from limits import RateLimitItemPerMinute
        from limits.storage import MemoryStorage
        from limits.strategies import SlidingWindowCounterRateLimiter

        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._limits = {
            name: RateLimitItemPerMinute(amount, namespace=name)
            for name, amount in (("tenant", settings.tenant_per_minute), ("subject", settings.subject_per_minute))
            if amount
        }

    def count(self, identity: Identity) -> None:
        """Count a request. Raises TooManyRequests; then it counts for nobody."""
        keys = {"tenant": (identity.tenant,), "subject": (identity.tenant, identity.subject)}
        for name, limit in self._limits.items():
            if not self._limiter.test(limit, *keys[name]):
                wait = self._limiter.get_window_stats(limit, *keys[name]).reset_time - time.time()
                raise TooManyRequests(
                    f"the {name} has used up its {limit.amount} requests a minute; try again later",
                    retry_after_s=max(1, min(60, math.ceil(wait))),
                )
        for name, limit in self._limits.items():
            self._limiter.hit(limit, *keys[name])
