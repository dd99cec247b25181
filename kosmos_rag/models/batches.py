"""Batches of inputs of similar length, so that little is padded."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def split_batches(
    lengths: Sequence[int], *, inputs: int, tokens: int, call_tokens: int | None = None
) -> Iterator[list[int]]:
    """Yield the places of inputs by batch, the longest inputs first.

    Args:
        lengths: Tokens of each input.
        inputs: Most inputs in one batch.
        tokens: Most tokens in one batch, padding included; an input that has more is alone.
        call_tokens: What another batch costs, in tokens: where padding costs more, there are more batches. None for
            as few batches as possible.
    """
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    longest_first = [lengths[place] for place in order]
    if call_tokens is None:
        starts = _fill(longest_first, inputs, tokens)
    else:
        starts = _minimise_cost(longest_first, inputs, tokens, call_tokens)
    for start, end in pairwise([*starts, len(order)]):
        yield order[start:end]


def _count_inputs(longest: int, inputs: int, tokens: int) -> int:
    return max(1, min(inputs, tokens // max(1, longest)))


def _fill(longest_first: Sequence[int], inputs: int, tokens: int) -> list[int]:
    """Return the start of each batch, where each has as many inputs as it may."""
    starts, start = [], 0
    while start < len(longest_first):
        starts.append(start)
        start += _count_inputs(longest_first[start], inputs, tokens)
    return starts


def _minimise_cost(longest_first: Sequence[int], inputs: int, tokens: int, call_tokens: int) -> list[int]:
    """Return the start of each batch, where tokens with padding and calls cost least together.

    Inputs of a batch are neighbours in the order: the best batches of the first inputs are part of the best of all.
    """
    count = len(longest_first)
    costs, starts = [0.0, *[math.inf] * count], [0] * (count + 1)
    for start, longest in enumerate(longest_first):
        for end in range(start + 1, min(count, start + _count_inputs(longest, inputs, tokens)) + 1):
            cost = costs[start] + call_tokens + longest * (end - start)
            if cost < costs[end]:
                costs[end], starts[end] = cost, start
    batches, end = list[int](), count
    while end:
        end = starts[end]
        batches.append(end)
    return batches[::-1]


def pad(encodings: Sequence[Any], pad_id: int) -> dict[str, NDArray[np.int64]]:
    """Return the arrays of a batch by their names in transformers; shape (inputs, longest input).

    Args:
        encodings: Encodings of the library `tokenizers`.
        pad_id: Token that fills up the shorter inputs.
    """
    shape = (len(encodings), max(map(len, encodings)))
    ids = np.full(shape, pad_id, dtype=np.int64)
    mask, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding)] = encoding.ids
        types[row, : len(encoding)] = encoding.type_ids
        mask[row, : len(encoding)] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
