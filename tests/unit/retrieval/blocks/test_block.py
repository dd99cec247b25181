"""Blocks: the nearest vectors, layers without chunks that are gone, and merged layers."""

import itertools
import random
from uuid import UUID

import numpy as np
import pytest

from kosmos_rag.retrieval.blocks import block as blocks
from kosmos_rag.retrieval.blocks.block import Block, Layer, inner_products
from kosmos_rag.retrieval.blocks.building import build_part, merge_small
from kosmos_rag.retrieval.blocks.cache import BlockCache, StateKey
from tests.unit.retrieval.blocks.parts import make_chunks, make_part, read_part


@pytest.fixture(autouse=True, params=["simsimd", "numpy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply codes by each library."""
    if request.param == "numpy":
        monkeypatch.setattr(blocks, "multiply", None)
    else:
        pytest.importorskip("simsimd")


def _block(*layers: Layer) -> Block:
    return Block(space_id=UUID(int=1), layers=layers, changes={})


def _numbers(block: Block, vector: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The nearest, as numbers of layer and row."""
    numbers = {layer.part.number: number for number, layer in enumerate(block.layers)}
    return sorted((numbers[part.number], row) for part, rows, _ in block.nearest(vector, count) for row in rows)


def test_nearest__are_the_largest_inner_products_of_all_layers() -> None:
    dice = np.random.default_rng(5)
    vectors = dice.normal(size=(1500, 16)).astype(np.float16)
    block = _block(*(Layer(part=make_part(vectors[start : start + 500])) for start in (0, 500, 1000)))
    query = vectors[3]
    scores = vectors.astype(np.float32) @ query.astype(np.float32)
    for count in (1, 10, 700):
        best = sorted(np.argsort(scores)[::-1][:count].tolist())
        assert [500 * layer + row for layer, row in _numbers(block, query, count)] == best
    assert len(_numbers(block, query, 2000)) == 1500


def test_nearest__are_with_what_is_equal_to_the_last() -> None:
    vectors = np.repeat(np.array([[1.0], [0.5], [0.1]]), [3, 8, 400], axis=0)
    block = _block(Layer(part=make_part(vectors)))
    item = np.ones(1, dtype=np.float16)
    assert _numbers(block, item, 5) == [(0, row) for row in range(11)]
    assert len(_numbers(block, item, 12)) == 411


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])
def test_products__are_those_of_single_precision(scale: float) -> None:
    """Also of numbers that half precision has as subnormal ones."""
    vectors = (np.random.default_rng(7).normal(size=(1100, 24)) * scale).astype(np.float16)
    query = vectors[5].astype(np.float32)
    expected = vectors.astype(np.float32) @ query
    assert np.allclose(inner_products(vectors, query), expected, rtol=1e-4, atol=1e-6 * scale * scale)
    lower, upper = Layer(part=make_part(vectors)).bound_products(query)
    assert ((lower <= expected) & (expected <= upper)).all()


def test_bounds__are_close_to_the_products_of_normalised_vectors() -> None:
    vectors = np.random.default_rng(8).normal(size=(300, 384))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    vectors[7] = 0
    lower, upper = Layer(part=make_part(vectors)).bound_products(vectors[5].astype(np.float32))
    # With simsimd the query has a code too, with an error as large as that of a vector.
    assert (upper - lower).max() < (0.03 if blocks.multiply is None else 0.06)


def test_layer__without_chunks_has_none_of_their_scores() -> None:
    vectors = np.random.default_rng(6).normal(size=(20, 8))
    layer = Layer(part=make_part(vectors)).without({"default": np.array([3, 4, 99], dtype=np.int32)})
    assert layer.rows == 18
    assert layer.without({"other": np.array([5], dtype=np.int32)}) is layer
    assert {row for _, row in _numbers(_block(layer), vectors[0], 20)} == set(range(20)) - {3, 4}


def test_merged_layers__have_the_chunks_that_are_not_gone() -> None:
    """Random publications and removals, compared with a dictionary."""
    dice = random.Random(3)
    expected: dict[str, dict[int, dict[int, int]]] = {"a": {}, "b": {}}
    layers: tuple[Layer, ...] = ()
    numbers = {"a": 1, "b": 1}
    most_layers = 0
    for _ in range(60):
        added: dict[str, dict[int, dict[int, int]]] = {}
        for name in dice.sample("ab", dice.randint(1, 2)):
            words = [{dice.randrange(9): dice.randint(1, 3) for _ in range(4)} for _ in range(dice.randint(1, 6))]
            added[name] = dict(enumerate(words, start=numbers[name]))
            numbers[name] += len(words)
        deleted = {name: dice.sample(sorted(expected[name]), len(expected[name]) // 10) for name in expected}
        for name, sequences in deleted.items():
            for sequence in sequences:
                del expected[name][sequence]
        for name, chunks in added.items():
            expected[name] |= chunks
        part = build_part({name: make_chunks(chunks) for name, chunks in added.items()})
        masks = {name: np.array(sequences, dtype=np.int32) for name, sequences in deleted.items()}
        layers = merge_small([*(layer.without(masks) for layer in layers), Layer(part=part)])
        most_layers = max(most_layers, len(layers))
        assert all(large.rows >= 4 * small.rows for large, small in itertools.pairwise(layers))
    result: dict[str, dict[int, dict[int, int]]] = {"a": {}, "b": {}}
    for layer in layers:
        deleted_rows = set() if layer.deleted is None else set(np.flatnonzero(layer.deleted).tolist())
        for name, chunks in read_part(layer.part).items():
            first = layer.part.collections[name].first
            live = {key: words for row, (key, words) in enumerate(chunks.items(), first) if row not in deleted_rows}
            result[name] |= live
    assert result == expected
    assert most_layers > 2


def _state(name: str, request: str = "all") -> StateKey:
    return request, UUID(int=1), name


def test_cache__keeps_to_its_limit() -> None:
    blocks = [_block(Layer(part=make_part(np.ones((10, 100))))) for _ in range(4)]
    cache = BlockCache(3 * blocks[0].bytes + 10)
    for name, block in zip("abcd", blocks, strict=True):
        cache.put("reader", _state(name), block)
    assert list(cache._blocks) == [_state(name) for name in "bcd"]
    cache.put("reader", _state("large"), _block(Layer(part=make_part(np.ones((20, 100))))))
    assert list(cache._blocks) == [_state(name) for name in "bcd"]


def test_cache__replaces_a_block_by_one_that_follows_it() -> None:
    first, last = (_block(Layer(part=make_part(np.ones((4, 8))))) for _ in range(2))
    last = Block(space_id=last.space_id, layers=last.layers, changes={}, lineage=first.lineage)
    before, after = _state("before"), _state("after")
    cache = BlockCache(1_000_000)
    cache.put("ann", before, first)
    assert not cache.miss("ben", before, filtered=False)
    cache.put("ann", after, last, instead_of=before)
    assert list(cache._blocks) == [after]
    # Ben may still see what Ann sees, which his next search finds out. His own block is gone.
    assert cache.find_latest("ben") is last
    assert cache.find_last("ben", after) is None
    assert cache.find("ben", after) is last
    cache.drop(after)
    assert cache.find_latest("ben") is None
    assert cache.bytes == 0


def test_find_last__is_of_the_same_request() -> None:
    block = _block(Layer(part=make_part(np.ones((4, 8)))))
    cache = BlockCache(1_000_000)
    cache.put("ann", _state("before"), block)
    assert cache.find_last("ann", _state("after")) == (_state("before"), block)
    assert cache.find_last("ann", _state("after", "approved")) is None
