"""Vectors and postings in memory: each search has the result of the database, to the last bit, in random worlds."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kosmos_rag import Engine, Filter, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.retrieval.blocks import loading
from tests.integration.retrieval.views.blocks import find_block_cache, opened_views
from tests.integration.variants import changed

pytestmark = pytest.mark.usefixtures("early_blocks")
IN_MEMORY = "exact, in memory"
LANGUAGES = {"prose": "english", "code": "simple"}
WORDS = ("running", "runs", "cars", "the", "rate", "getUserById", "XJ-4471-B", "XJ4471", "o'neil", "margin", "churn")
EVERYWHERE = "ubiquitous"
ACLS = ((EVERYONE,), ("ann",), ("ben",), ("ann", "ben"))
READERS = ((EVERYONE,), (EVERYONE, "ann"), ("ben",), (EVERYONE, "ann", "ben"))
FILTERS = (None, {"metadata.kind": "a"}, {"collection": "prose"})
SETTINGS: dict[str, Any] = {
    "rag.retrieval.candidates": 12,
    "rag.retrieval.top_k": 8,
    "rag.chunking.min_size": 1,
    "indexes.vector": "none",
    "indexes.unsegmented_chunks": 5,
}


@pytest.fixture
def engines(settings: Settings) -> Iterator[tuple[Engine, Engine]]:
    """One with the view of the memory, and one without."""
    with opened_views(settings, SETTINGS) as engines:
        yield engines


def _result(result: SearchResult) -> list[tuple[Any, ...]]:
    return [
        (hit.chunk_id, hit.score, hit.dense_rank, hit.dense_score, hit.lexical_rank, hit.lexical_score)
        for hit in result.hits
    ]


def _plans(result: SearchResult) -> set[str]:
    return {stats.plan for stats in result.retrievers.values()}


def _words(dice: random.Random, most: int) -> str:
    return " ".join(dice.choices(WORDS, k=dice.randint(1, most)))


def _document(dice: random.Random, collection: str, source: str) -> SourceDocument:
    text = " ".join([*[EVERYWHERE] * dice.randint(0, 300), _words(dice, 9)])
    return SourceDocument(
        source=source,
        data=text.encode(),
        language=LANGUAGES[collection],
        acl=dice.choice(ACLS),
        metadata={"kind": dice.choice("ab")},
    )


def _change(dice: random.Random, engine: Engine, name: str) -> None:
    """Publish, replace, delete or pack documents of one collection, or change their metadata or their readers."""
    collection = dice.choice(sorted(LANGUAGES))
    scope = engine.tenant(name, collection=collection)
    sources = [f"{collection}{number}" for number in dice.sample(range(40), 8)]
    stored = dice.sample(sorted(scope.sources()), min(3, len(scope.sources())))
    match dice.randrange(5):
        case 0 | 1:
            assert scope.ingest([_document(dice, collection, source) for source in sources]).failed == ()
        case 2:
            scope.delete(stored)
        case 3:
            scope.update_metadata(stored, {"kind": dice.choice("ab")})
        case 4:
            scope.indexes.build()


def _load(scope: Tenant, where: Filter | None) -> None:
    scope.search(EVERYWHERE, filter=where)
    assert scope._parts.background.drain(10)


@pytest.mark.parametrize("seed", range(3))
def test_results__are_those_of_the_database_after_every_change(
    engines: tuple[Engine, Engine], tenant_name: str, seed: int
) -> None:
    dice = random.Random(seed)
    for collection in LANGUAGES:
        engines[0].tenant(tenant_name, collection=collection).ingest(
            [_document(dice, collection, f"{collection}{number}") for number in range(30)]
        )
    found_hits = 0
    for _ in range(8):
        _change(dice, engines[0], tenant_name)
        principals, searched = dice.choice(READERS), dice.choice([None, *LANGUAGES])
        conditions = dice.choice(FILTERS)
        where = None if conditions is None else Filter(where=conditions)
        cached, plain = (e.tenant(tenant_name, collection=searched, principals=principals) for e in engines)
        _load(cached, where)
        cache = find_block_cache(engines[0])
        for _ in range(6):
            question = _words(dice, 5)
            # Close terms of its words are looked up in the database once for each state.
            cached.search(question, filter=where)
            hits = cache.hits
            result, expected = (scope.search(question, filter=where) for scope in (cached, plain))
            assert _result(result) == _result(expected)
            assert cache.hits > hits
            assert _plans(result) in ({IN_MEMORY}, {"hidden"})
            found_hits += len(result.hits)
    assert found_hits > 50


def test_required_and_excluded_words__are_searched_in_the_database(
    engines: tuple[Engine, Engine], tenant_name: str
) -> None:
    dice = random.Random(7)
    engines[0].tenant(tenant_name).ingest([_document(dice, "prose", f"p{number}") for number in range(40)])
    cached, plain = (engine.tenant(tenant_name, principals=READERS[3]) for engine in engines)
    _load(cached, None)
    for question in ("+margin churn", "cars -rate", 'the "running cars"'):
        result, expected = cached.search(question), plain.search(question)
        assert _result(result) == _result(expected)
        assert IN_MEMORY not in {stats.plan for name, stats in result.retrievers.items() if "quoted" in name}


def test_close_terms__are_scored_in_memory(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    dice = random.Random(8)
    engines[0].tenant(tenant_name).ingest([_document(dice, "prose", f"p{number}") for number in range(40)])
    cached, plain = (engine.tenant(tenant_name, principals=READERS[3]) for engine in engines)
    _load(cached, None)
    expected = plain.search("marginn of the churn")
    # They are looked up by the first search, and known to the second one.
    for _ in range(2):
        result = cached.search("marginn of the churn")
        assert result.warnings == expected.warnings != ()
        assert _result(result) == _result(expected)
        assert _plans(result) == {IN_MEMORY}


@pytest.mark.parametrize("weight", ["rag.retrieval.semantic_weight", "rag.retrieval.keyword_weight"])
def test_one_retriever__has_a_block_of_its_own(settings: Settings, tenant_name: str, weight: str) -> None:
    dice = random.Random(9)
    alone = {**SETTINGS, weight: 0.0}
    with (
        Engine(changed(settings, alone), embedder=HashingEmbedder()) as cached,
        Engine(changed(settings, {**alone, "indexes.vector_cache_mb": 0}), embedder=HashingEmbedder()) as plain,
    ):
        cached.tenant(tenant_name).ingest([_document(dice, "prose", f"p{number}") for number in range(40)])
        scopes = [engine.tenant(tenant_name, principals=READERS[3]) for engine in (cached, plain)]
        _load(scopes[0], None)
        for question in ("margin", "the cars of churn"):
            result, expected = (scope.search(question) for scope in scopes)
            assert _result(result) == _result(expected)
            assert _plans(result) == {IN_MEMORY}
        [block] = find_block_cache(cached)._blocks.values()
        [layer] = block.layers
        [rows] = layer.part.collections.values()
        assert (layer.part.vectors is None) == (weight == "rag.retrieval.semantic_weight")
        assert (len(rows.offsets) == 0) == (weight == "rag.retrieval.keyword_weight")


def test_postings__of_few_chunks_of_a_large_tenant_come_from_their_lexemes(
    engines: tuple[Engine, Engine], tenant_name: str
) -> None:
    """A block may have 50 chunks, and a filter leaves about half of 60: not all postings are read for them."""
    dice = random.Random(10)
    documents = [_document(dice, "prose", f"p{number}") for number in range(60)]
    one_chunk_each = [replace(each, data=each.data.replace(b"ubiquitous ", b"")) for each in documents]
    engines[0].tenant(tenant_name).ingest(one_chunk_each)
    cached, plain = (engine.tenant(tenant_name, principals=READERS[3]) for engine in engines)
    where = Filter(where={"metadata.kind": "a"})
    cache = find_block_cache(engines[0])
    cache._max_bytes = 2 * 50 * (2 * HashingEmbedder().dimensions + 650)
    _load(cached, where)
    result, expected = (scope.search("margin of cars", filter=where) for scope in (cached, plain))
    assert [stats.plan for stats in result.retrievers.values()] == [IN_MEMORY, IN_MEMORY]
    assert _result(result) == _result(expected)


def test_postings__from_lexemes_are_the_packed_ones(
    engines: tuple[Engine, Engine], tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(12)
    scope = engines[0].tenant(tenant_name, principals=READERS[3])
    blocks = find_block_cache(engines[0])
    postings = []
    for turn in range(2):
        scope.ingest([_document(dice, "prose", f"p{turn}{number}") for number in range(20)], prune=False)
        scope.indexes.build()
        scope.ingest([_document(dice, "prose", f"q{turn}{number}") for number in range(20)], prune=False)
    for packed_speed in (0, 8):
        monkeypatch.setattr(loading, "_PACKED_SPEED", packed_speed)
        for state in list(blocks._blocks):
            blocks.drop(state)
        blocks._missed.clear()
        _load(scope, None)
        [block] = blocks._blocks.values()
        [layer] = block.layers
        postings.append((layer.part.ids.tolist(), layer.part.collections["default"]))
    (ids, lexemes), (packed_ids, packed) = postings
    assert len(packed_ids) > 80
    assert ids == packed_ids
    for array in ("lexeme_ids", "starts", "offsets", "frequencies"):
        assert getattr(lexemes, array).tolist() == getattr(packed, array).tolist()
    for array in ("offsets", "frequencies"):
        assert getattr(lexemes.chunks, array).tolist() == getattr(packed.chunks, array).tolist()


def test_postings__know_no_chunk_that_the_reader_may_not_read(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    dice = random.Random(11)
    scope = engines[0].tenant(tenant_name)
    for packed in (True, False):
        documents = [_document(dice, "prose", f"{packed}{number}") for number in range(20)]
        scope.ingest(documents)
        if packed:
            scope.indexes.build()
    for principals in (READERS[3], ("ben",)):
        _load(engines[0].tenant(tenant_name, principals=principals), None)
    parts = []
    for block in find_block_cache(engines[0])._blocks.values():
        [layer] = block.layers
        parts.append(layer.part)
    whole, part = ({bytes(row) for row in part.ids.tolist()} for part in parts)
    assert part < whole
    assert set(parts[1].collections["default"].offsets.tolist()) == set(range(len(part)))
