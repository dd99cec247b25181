"""The cache of postings, and the scores of a segment: bounded, the least recently used goes first, exact on demand."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.retrieval.postings import (
    CHUNKS,
    MAX_FREQUENCY,
    Key,
    Posting,
    PostingsCache,
    SegmentScores,
    pack_frequencies,
    reached_score,
    unpack_frequencies,
)

SEGMENT = uuid.UUID(int=1)


def _posting(count: int) -> Posting:
    return Posting(offsets=np.arange(count, dtype=np.int32), frequencies=np.ones(count, dtype=np.uint8))


def _key(number: int) -> Key:
    return SEGMENT, number


ONE = _posting(10).bytes


def test_posting__counts_its_numbers_and_something_for_itself() -> None:
    assert _posting(1000).bytes - _posting(0).bytes == 5000
    assert _posting(0).bytes > 0


def test_cache__drops_the_least_recently_used() -> None:
    cache = PostingsCache(3 * ONE)
    cache.put({_key(n): _posting(10) for n in (1, 2, 3)})
    cache.get([_key(1)])
    cache.put({_key(4): _posting(10)})
    assert set(cache.get(map(_key, range(5)))) == {_key(1), _key(3), _key(4)}
    assert cache.bytes == 3 * ONE


def test_cache__keeps_what_it_has_where_an_entry_is_larger_than_all_of_it() -> None:
    cache = PostingsCache(3 * ONE)
    cache.put({_key(1): _posting(10)})
    cache.put({_key(2): _posting(1000)})
    assert set(cache.get([_key(1), _key(2)])) == {_key(1)}
    assert cache.bytes == ONE


def test_cache__counts_an_entry_once() -> None:
    cache = PostingsCache(3 * ONE)
    for _ in range(5):
        cache.put({_key(1): _posting(10)})
    assert cache.bytes == ONE
    assert cache.get([_key(1)])[_key(1)].offsets.tolist() == list(range(10))


def test_cache__keeps_segments_apart() -> None:
    cache = PostingsCache(10 * ONE)
    other = uuid.UUID(int=2)
    cache.put({(SEGMENT, CHUNKS): _posting(3), (other, CHUNKS): _posting(4)})
    assert len(cache.get([(other, CHUNKS)])[other, CHUNKS].offsets) == 4


@given(
    limit=st.integers(0, 5000),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 300)), max_size=60),
)
def test_cache__is_a_dictionary_that_forgets(limit: int, steps: list[tuple[bool, int, int]]) -> None:
    """Against a list in the order of use, in which the last is the most recent."""
    cache = PostingsCache(limit)
    pairs: list[tuple[Key, Posting]] = []
    for keeps, number, count in steps:
        key, posting = _key(number), _posting(count)
        stored = dict(pairs)
        if keeps:
            cache.put({key: posting})
            if key not in stored and posting.bytes <= limit:
                pairs.append((key, posting))
            while sum(entry.bytes for _, entry in pairs) > limit:
                pairs.pop(0)
        else:
            value = cache.get([key])
            assert value == ({key: stored[key]} if key in stored else {})
            if key in stored:
                pairs.append(pairs.pop([entry[0] for entry in pairs].index(key)))
        assert cache.bytes == sum(entry.bytes for _, entry in pairs) <= limit


def test_cache__holds_under_eight_threads() -> None:
    limit = 20 * ONE
    cache = PostingsCache(limit)
    together = threading.Barrier(8)

    def work(seed: int) -> int:
        dice = np.random.default_rng(seed)
        together.wait()
        hits = 0
        for _ in range(2_000):
            number = int(dice.integers(1, 60))
            result = cache.get([_key(number)])
            if result:
                hits += 1
                assert len(result[_key(number)].offsets) == number
            else:
                cache.put({_key(number): _posting(number)})
            assert cache.bytes <= limit + _posting(60).bytes  # read without the lock, while another adds
        return hits

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) > 0
    value = cache.get(map(_key, range(60)))
    assert cache.bytes == sum(entry.bytes for entry in value.values()) <= limit


def _segment(bags: list[dict[int, int]], idf: dict[int, float]) -> SegmentScores:
    """A segment whose chunk at offset n holds the terms of `bags[n]` with their frequencies."""
    lengths = np.array([sum(bag.values()) for bag in bags], dtype=np.int32)
    average = max(int(lengths.sum()), 1) / max(len(bags), 1)
    postings = []
    for term, weight in idf.items():
        numbers = [number for number, bag in enumerate(bags) if term in bag]
        offsets = np.array(numbers, dtype=np.int32)
        frequencies = np.array([bags[number][term] for number in numbers], dtype=np.uint8)
        postings.append((weight, Posting(offsets=offsets, frequencies=frequencies)))
    serials = np.arange(100, 100 + len(bags), dtype=np.int32)
    return SegmentScores.from_postings("default", Posting(offsets=serials, frequencies=lengths), average, postings)


def _expected(bags: list[dict[int, int]], idf: dict[int, float]) -> list[float]:
    average = max(sum(sum(bag.values()) for bag in bags), 1) / max(len(bags), 1)
    return [
        sum(
            bag[term] * 2.5 / (bag[term] + 1.5 * (0.5 + 0.5 * sum(bag.values()) / average)) * weight
            for term, weight in idf.items()
            if term in bag
        )
        for bag in bags
    ]


_BAG = st.dictionaries(st.integers(1, 6), st.integers(1, 255), max_size=6)
_IDF = st.dictionaries(st.integers(1, 8), st.floats(1e-6, 20), max_size=5).map(lambda idf: dict(sorted(idf.items())))


@given(bags=st.lists(_BAG, min_size=1, max_size=60), idf=_IDF, count=st.integers(1, 20))
def test_segment_scores__are_exact_and_their_best_are_all_there(
    bags: list[dict[int, int]], idf: dict[int, float], count: int
) -> None:
    segment = _segment(bags, idf)
    expected = np.array(_expected(bags, idf))
    assert segment.exact(np.arange(len(bags))).tolist() == pytest.approx(expected.tolist(), rel=1e-12)
    assert segment.scores.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    best = set(segment.best(count).tolist())
    holding = np.flatnonzero(expected)
    assert best <= set(holding.tolist())
    cut = np.sort(expected[holding])[::-1][:count][-1] if len(holding) else 0.0
    assert {number for number in holding.tolist() if expected[number] >= cut} <= best


@given(scores=st.lists(st.integers(0, 40), max_size=400), count=st.integers(1, 5))
def test_reached_score__is_reached_by_as_many(scores: list[int], count: int) -> None:
    """Enough scores for several of a group, many of them equal."""
    reached = reached_score(np.array(scores, dtype=np.float64), count)
    assert reached <= (sorted(scores)[-count] if count < len(scores) else -np.inf)


def test_reached_score__of_many_is_hardly_less_than_the_largest_one() -> None:
    scores = np.random.default_rng(1).permutation(20_000).astype(np.float32)
    assert [20_000 - reached_score(scores, count) for count in (1, 10, 100)] == [1, 12, 112]


def test_segment_scores__of_a_question_that_no_chunk_answers_are_none() -> None:
    segment = _segment([{1: 2}, {}], {5: 1.0})
    assert (segment.terms, len(segment.postings.offsets)) == ((), 0)
    assert segment.best(3).tolist() == []


@given(st.lists(st.integers(0, 1000), max_size=50))
def test_frequencies__come_back_up_to_what_a_tsvector_keeps(frequencies: list[int]) -> None:
    packed = pack_frequencies(np.array(frequencies, dtype=np.float64))
    assert len(packed) == len(frequencies)
    assert unpack_frequencies(packed).tolist() == [min(frequency, MAX_FREQUENCY) for frequency in frequencies]
