"""The tenant that the tests of re-embedding move, and what is stored of it."""

import uuid
from collections.abc import Sequence

import psycopg

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import SpaceInfo

CHUNKS = 40
QUESTION = "churn of account7"


def by_model(spaces: Sequence[SpaceInfo]) -> dict[str, SpaceInfo]:
    return {info.model: info for info in spaces}


def stored(database: DatabaseSettings, tenant_id: uuid.UUID) -> dict[str, int]:
    """How many vectors there are of each model."""
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT s.model, count(e.chunk_id) FROM kosmos.embedding_spaces s LEFT JOIN kosmos.embeddings e "
            "ON e.tenant_id = s.tenant_id AND e.space_id = s.id WHERE s.tenant_id = %s GROUP BY 1",
            (tenant_id,),
        ).fetchall()
    return dict(rows)
