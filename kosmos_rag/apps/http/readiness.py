"""Checks the database for `/readyz`.

Concurrent probes share one check, because they need no credentials.
"""

import asyncio
import logging

from kosmos_rag.core.errors import KosmosError
from kosmos_rag.storage.pool import Database

_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class Readiness:
    """Checks the database outside the concurrency limit: a busy service is ready."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._check: asyncio.Task[bool] | None = None

    async def is_ready(self) -> bool:
        """Check the database.

        It must be reachable, at a supported revision, with its row-level security.
        """
        if self._check is None or self._check.done():
            self._check = asyncio.create_task(asyncio.to_thread(self._check_database))
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await asyncio.shield(self._check)
        except TimeoutError:
            logger.warning(
                "not ready: the database does not answer within %g seconds", _TIMEOUT_S, extra={"action": "not_ready"}
            )
            return False

    def _check_database(self) -> bool:
        try:
            problems = self._database.app.inspect().problems
        except KosmosError as error:
            problems = (str(error),)
        if problems:
            logger.warning("not ready: %s", "; ".join(problems), extra={"action": "not_ready"})
        return not problems
