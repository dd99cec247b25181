"""Checks the database for `/readyz`.

Concurrent probes share one check, because they need no credentials.
"""

import asyncio
import logging

from kosmos_rag.core.errors import KosmosError
from kosmos_rag.core.telemetry.health import ReadyState
from kosmos_rag.engine.engine import Engine

_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class Readiness:
    """Checks the database outside the concurrency limit: a busy service is ready."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._check: asyncio.Task[ReadyState] | None = None
        self.was_ready = True
        """Whether the last completed check found the database ready; true before the first one."""

    async def state(self) -> ReadyState:
        """Check the database.

        It must be reachable, at a supported revision, with its row-level security. A node of a cluster may be down:
        the tenants of the others are served.
        """
        if self._check is None or self._check.done():
            self._check = asyncio.create_task(asyncio.to_thread(self._check_database))
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                state = await asyncio.shield(self._check)
                self.was_ready = state.ready
                return state
        except TimeoutError:
            self.was_ready = False
            logger.warning(
                "not ready: the database does not answer within %g seconds", _TIMEOUT_S, extra={"action": "not_ready"}
            )
            return ReadyState(ready=False)

    def _check_database(self) -> ReadyState:
        try:
            state = self._engine.inspect()
        except KosmosError as error:
            logger.warning("not ready: %s", error, extra={"action": "not_ready"})
            return ReadyState(ready=False)
        if state.problems:
            logger.warning("not ready: %s", "; ".join(state.problems), extra={"action": "not_ready"})
        for node in state.unavailable_nodes:
            logger.warning(
                "node %d of the cluster (%s) is unavailable", node.id, node.address,
                extra={"action": "node_unavailable", "node": node.address},
            )  # fmt: skip
        return ReadyState(
            ready=not state.problems, unavailable_nodes=tuple(node.id for node in state.unavailable_nodes)
        )
