"""Batches of inputs by their lengths."""

import random
from collections.abc import Iterator, Sequence

import pytest

from kosmos_rag.models.batches import split_batches


def _lengths_by_batch(lengths: Sequence[int], **limits: int) -> list[list[int]]:
    batches = list(split_batches(lengths, **limits))
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    return [[lengths[place] for place in batch] for batch in batches]


def test_split_batches__fills_batches_with_the_longest_first() -> None:
    assert _lengths_by_batch([5, 90, 40, 80, 7], inputs=2, tokens=200) == [[90, 80], [40, 7], [5]]
    assert _lengths_by_batch([300, 60, 60], inputs=9, tokens=120) == [[300], [60, 60]]
    assert _lengths_by_batch([], inputs=2, tokens=200) == []


def test_split_batches__takes_another_batch_where_padding_costs_more() -> None:
    assert _lengths_by_batch([100, 95, 20, 18], inputs=32, tokens=2048, call_tokens=11) == [[100, 95], [20, 18]]
    assert _lengths_by_batch([100, 80], inputs=32, tokens=2048, call_tokens=11) == [[100], [80]]
    assert _lengths_by_batch([40] * 4, inputs=2, tokens=2048, call_tokens=11) == [[40, 40], [40, 40]]


@pytest.mark.parametrize("seed", range(20))
def test_split_batches__cost_as_little_as_the_best_division(seed: int) -> None:
    dice = random.Random(seed)
    lengths, call_tokens = [dice.randint(1, 120) for _ in range(dice.randint(1, 9))], dice.randint(0, 40)
    batches = _lengths_by_batch(lengths, inputs=3, tokens=250, call_tokens=call_tokens)
    assert all(len(batch) <= 3 and (len(batch) == 1 or len(batch) * max(batch) <= 250) for batch in batches)
    divisions = _divide(sorted(lengths, reverse=True), inputs=3, tokens=250)
    assert _cost(batches, call_tokens) == min(_cost(division, call_tokens) for division in divisions)


def _cost(batches: Sequence[Sequence[int]], call_tokens: int) -> int:
    return sum(call_tokens + len(batch) * max(batch) for batch in batches)


def _divide(lengths: list[int], *, inputs: int, tokens: int) -> Iterator[list[list[int]]]:
    """Yield all divisions of lengths into batches of neighbours."""
    if not lengths:
        yield []
    for end in range(1, min(inputs, len(lengths)) + 1):
        if end == 1 or end * lengths[0] <= tokens:
            for others in _divide(lengths[end:], inputs=inputs, tokens=tokens):
                yield [lengths[:end], *others]
