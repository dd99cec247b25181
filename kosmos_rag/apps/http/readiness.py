"""Whether the database can be served from: looked up once for all who ask meanwhile, for anybody may ask."""

import asyncio
import logging

from kosmos_rag.core.errors import KosmosError
from kosmos_rag.storage.pool import Database

_WITHIN_S = 5.0

logger = logging.getLogger(__name__)


class Readiness:
    """Looks at the database, over a connection and in a thread beside the turns: who is busy is ready."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looking: asyncio.Task[bool] | None = None

    async def ready(self) -> bool:
        """Tell whether it is reached, at a revision that the code can serve from, its policies as they should be."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(asyncio.to_thread(self._look))
        try:
            async with asyncio.timeout(_WITHIN_S):
                return await asyncio.shield(self._looking)
        except TimeoutError:
            logger.warning(
                "not ready: the database does not answer within %g seconds", _WITHIN_S, extra={"action": "not_ready"}
            )
            return False

    def _look(self) -> bool:
        try:
            problems = self._database.app.inspect().problems
        except KosmosError as error:
            problems = (str(error),)
        if problems:
            logger.warning("not ready: %s", "; ".join(problems), extra={"action": "not_ready"})
        return not problems
