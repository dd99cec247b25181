"""With a vector index as without: a reader, a filter, a required word or a collection leaves nothing out."""

from collections.abc import Callable

import pytest

from kosmos_rag import Engine, Filter, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import EmbeddingSpaceMismatch
from kosmos_rag.core.types import EVERYONE
from tests.integration.indexing.ann.worlds import (
    CHUNKS,
    FULL,
    PRINCIPALS,
    QUESTIONS,
    TOPICS,
    WORLD,
    TopicEmbedder,
    asking,
    assert_right,
    measure_recall,
    opened,
    parse_numbers,
    physical,
    publish_world,
    select_vector_indexes,
    stored,
)
from tests.integration.variants import changed

# --- completeness --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", ["ivfflat", "hnsw"])
def test_reader__of_part_of_the_rows_gets_all_that_is_asked_for(vector: str, settings: Settings) -> None:
    with opened(settings, vector=vector) as engine:
        engine.tenant("acme").indexes.build()
        for name, step in PRINCIPALS.items():
            scope = engine.tenant("acme", principals=[name])
            visible = len(range(0, CHUNKS, step))
            for k in (FULL, 300):
                result = scope.search(QUESTIONS[0], k)
                assert result.returned == min(k, visible), (name, result.retrievers)
                assert all(hit.metadata["n"] % step == 0 for hit in result.hits)
            narrow = name != "half"
            assert result.retrievers["dense"].plan == "hidden", name  # it depends on what they may not read
            recall, _ = measure_recall(
                asking(engine, principals=[name]),
                lambda n, step=step: n < CHUNKS and n % step == 0,
                questions=QUESTIONS[:20],
            )
            assert recall >= (0.99 if narrow else 0.9), name
        assert engine.tenant("acme", principals=["nobody"]).search(QUESTIONS[0]).returned == 0


FILTERS: dict[str, tuple[Filter, Callable[[int], bool], bool]] = {
    "one": (Filter(where={"metadata.n": 77}), lambda n: n == 77, True),
    "ten": (Filter(where={"metadata.n": {"$lt": 10}}), lambda n: n < 10, True),
    "one in a hundred": (Filter(where={"metadata.n": {"$gte": CHUNKS - 40}}), lambda n: n >= CHUNKS - 40, True),
    "four tenths": (
        Filter(where={"metadata.tenth": {"$in": [0, 2, 5, 8]}}),
        lambda n: n // 7 % 10 in {0, 2, 5, 8},
        False,
    ),
    "none": (Filter(where={"metadata.n": -1}), lambda _: False, True),
}
"""With which chunks each leaves, and whether they are so few that their documents are looked up."""


@pytest.mark.parametrize("vector", ["ivfflat", "hnsw"])
def test_filter__leaves_nothing_out(vector: str, settings: Settings) -> None:
    with opened(settings, vector=vector) as engine:
        engine.tenant("acme").indexes.build()
        for name, (expected, passes, narrow) in FILTERS.items():
            left = sum(passes(number) for number in range(CHUNKS))
            for k in (FULL, 200):
                result = engine.tenant("acme").search(QUESTIONS[1], k, expected)
                assert result.returned == min(k, left), (name, result.retrievers)
                assert all(passes(hit.metadata["n"]) for hit in result.hits)
            assert result.retrievers["dense"].plan == ("exact, by document" if narrow else vector), name
            if left:
                recall, _ = measure_recall(
                    asking(engine, expected),
                    lambda n, passes=passes: n < CHUNKS and passes(n),
                    questions=QUESTIONS[:12],
                )
                assert recall >= (0.99 if narrow else 0.9), name


@pytest.mark.parametrize(
    ("operators", "passes"),
    [
        ('"common words"', lambda n: True),
        ("+third", lambda n: n % 3 == 0),
        ("-third", lambda n: n % 3 != 0),
        ("+chunk77", lambda n: n == 77),
        ('+"third topic1"', lambda n: n % 3 == 0 and n * 17 % TOPICS == 1),
    ],
)
def test_required_terms__leave_nothing_out(operators: str, passes: Callable[[int], bool], indexed: Engine) -> None:
    for principals, step in (([EVERYONE], 1), (["half"], 2), (["few"], 200)):
        visible = sum(passes(number) for number in range(0, CHUNKS, step))
        question = f"topic1 question {operators}"
        result = indexed.tenant("acme", principals=principals).search(question, 200)
        assert result.returned == min(200, visible), result.retrievers
        assert all(passes(number) and number % step == 0 for number in parse_numbers(result))


def test_collection__of_a_few_in_a_large_index_is_complete(indexed: Engine) -> None:
    publish_world(indexed, "acme", range(CHUNKS, CHUNKS + 30), collection="kb")
    publish_world(indexed, "acme", range(CHUNKS + 30, CHUNKS + 1_030), collection="faq")
    for collection, numbers in (
        ("kb", range(CHUNKS, CHUNKS + 30)),
        ("faq", range(CHUNKS + 30, CHUNKS + 1_030)),
        ("default", range(CHUNKS)),
        ("none", range(0)),
    ):
        result = indexed.tenant("acme", collection=collection).search(QUESTIONS[2], 100)
        assert result.returned == min(100, len(numbers)), (collection, result.retrievers)
        assert {hit.collection for hit in result.hits} <= {collection}
        if numbers:
            recall, _ = measure_recall(asking(indexed, collection=collection), numbers.__contains__)
            assert recall >= 0.9, collection


def test_similarity_threshold__is_held_by_every_plan(settings: Settings) -> None:
    strict = changed(settings, {"rag.retrieval.similarity_threshold": 0.7})
    with opened(strict) as engine:
        engine.tenant("acme").indexes.build()
        for question in QUESTIONS[:10]:
            scores = stored()[:CHUNKS] @ WORLD.embed_query(question)
            result = engine.tenant("acme").search(question, 100)
            assert all((hit.dense_score or 0) >= 0.7 for hit in result.hits)
            assert result.returned <= int((scores >= 0.699).sum())
            reason = result.retrievers["dense"].reason or ""
            assert result.incomplete_reason is None or "below similarity_threshold 0.7" in reason


# --- spaces ----------------------------------------------------------------------------------------------------------


def test_question__of_another_dimension_is_refused(indexed: Engine, settings: Settings) -> None:
    with opened(settings, TopicEmbedder(dimensions=32)) as other:
        with pytest.raises(EmbeddingSpaceMismatch, match="64 dimensions"):
            other.tenant("acme").search("topic3")
        with pytest.raises(EmbeddingSpaceMismatch, match="64 dimensions"):
            other.tenant("acme").indexes.rebuild()


@pytest.mark.slow
def test_index__of_a_space_that_no_longer_answers_is_left_to_it(
    indexed: Engine, settings: Settings, database: DatabaseSettings
) -> None:
    """Vectors of a second model are put beside the first's, and made the ones that answer."""
    embedder = TopicEmbedder(dimensions=32, name="second")
    [old] = physical(database)
    with Engine(changed(settings, {"indexes.vector": "none"}), embedder=WORLD, next_embedder=embedder) as both:
        both.tenant("acme").spaces.start()
        both.tenant("acme").spaces.cutover()
    with opened(settings) as first, pytest.raises(EmbeddingSpaceMismatch):
        first.tenant("acme").search(QUESTIONS[0])
    with opened(settings, embedder) as second:
        scope = second.tenant("acme")
        assert scope.search(QUESTIONS[0], FULL).retrievers["dense"].plan == "exact scan"
        assert {info.kind: info.due for info in select_vector_indexes(scope.indexes.status())} == {
            "ivfflat": None,
            "none": "indexes.vector_min_chunks is 1,000",
        }
        assert [info.due for info in select_vector_indexes(scope.indexes.build())] == [None, None]
        assert old in physical(database)
        assert_right(second, "ivfflat", embedder=embedder)
