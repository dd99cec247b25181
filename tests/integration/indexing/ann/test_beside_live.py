"""A vector index over the space that a tenant is moved to: built and measured before questions use it."""

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from tests.integration.indexing.ann.worlds import (
    CHUNKS,
    FULL,
    QUESTIONS,
    WORLD,
    TopicEmbedder,
    assert_right,
    physical,
    select_vector_indexes,
)
from tests.integration.variants import changed

pytestmark = pytest.mark.slow

NEXT = TopicEmbedder(dimensions=128, name="next")


def test_index__of_the_new_space_is_there_before_questions_are(
    indexed: Engine, settings: Settings, database: DatabaseSettings
) -> None:
    [old] = physical(database)
    with Engine(settings, embedder=WORLD, next_embedder=NEXT) as engine:
        scope = engine.tenant("acme")
        steps: list[str] = []
        started = scope.spaces.start(on_progress=lambda result, _total, step: steps.append(step))
        assert f"building ivfflat over {CHUNKS:,} vectors" in steps
        assert [(info.index, info.live) for info in started] == [("ivfflat", True), ("ivfflat", False)]
        assert all(info.recall_at_10 is not None and info.recall_at_10 > 0.9 for info in started)
        assert [info.due for info in select_vector_indexes(scope.indexes.status())] == [None, None]
        scope.indexes.build()
        assert len(physical(database)) == 2
        assert_right(engine, "ivfflat")

        quality = scope.spaces.cutover()
        assert quality.recall_at_10 is not None
        assert quality.recall_at_10 >= quality.recall_target
        assert_right(engine, "ivfflat", embedder=NEXT)
        scope.indexes.build()
        scope.spaces.rollback()
        assert_right(engine, "ivfflat")
        scope.spaces.drop("next")
        assert physical(database) == {old: True}
        assert_right(engine, "ivfflat")


def test_switch__is_refused_where_the_index_misses_the_target(settings: Settings) -> None:
    # Sixteen bits confuse more than ten candidates a hit put right.
    strict = changed(settings, {"indexes.recall_target": 1.0, "indexes.vector": "hnsw", "indexes.precision": "bit"})
    with Engine(strict, embedder=WORLD, next_embedder=TopicEmbedder(dimensions=16, name="coarse")) as engine:
        scope = engine.tenant("acme")
        scope.spaces.start()
        with pytest.raises(RequestError, match=r"recall@10 of its index is 0\.\d+, the target is 1\.0; "):
            scope.spaces.cutover()
        assert scope.spaces.status()[0].model == "topics"
        assert scope.spaces.cutover(force="a drill").forced == "a drill"
        assert scope.search(QUESTIONS[0], FULL).returned == FULL
