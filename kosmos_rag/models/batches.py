"""Batches of inputs of similar length, so that little is padded."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def split_batches(lengths: Sequence[int], *, inputs: int, tokens: int) -> Iterator[list[int]]:
    """Yield the places of inputs by batch, the longest inputs first.

    Args:
        lengths: Tokens of each input.
        inputs: Most inputs in one batch.
        tokens: Most tokens in one batch, padding included; an input that has more is alone.
    """
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        batch = order[start : start + max(1, min(inputs, tokens // max(1, lengths[order[start]])))]
        start += len(batch)
        yield batch


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
