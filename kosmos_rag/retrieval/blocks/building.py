"""Build the parts of blocks, and merge them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.retrieval.blocks.block import CollectionRows, Layer, Part, Vectors
from kosmos_rag.retrieval.postings import Posting

_GROWTH = 4
"""A layer is merged with the one before unless that has this many times its chunks."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Entries:
    """Term frequencies of chunks: parallel arrays."""

    lexeme_ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    """Of the chunks; negative for one that is left out."""
    frequencies: NDArray[np.uint8]


_NO_ENTRIES = Entries(
    lexeme_ids=np.empty(0, dtype=np.int64),
    offsets=np.empty(0, dtype=np.int64),
    frequencies=np.empty(0, dtype=np.uint8),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chunks:
    """Chunks of one collection, by sequence number."""

    sequences: NDArray[np.int32]
    """Ascending."""
    lengths: NDArray[np.int32]
    ids: NDArray[np.uint8]
    vectors: NDArray[np.float16] | None
    has_vector: NDArray[np.bool_]
    entries: Sequence[Entries]


def build_part(collections: Mapping[str, Chunks]) -> Part:
    """Build a part from the chunks of each collection."""
    rows, first = {}, 0
    for name, chunks in collections.items():
        rows[name] = _build_rows(first, chunks)
        first += len(chunks.sequences)
    parts = list(collections.values())
    vectors = [chunks.vectors for chunks in parts if chunks.vectors is not None]
    has_vector = np.concatenate([np.empty(0, dtype=np.bool_), *(chunks.has_vector for chunks in parts)])
    return Part(
        ids=np.concatenate([np.empty((0, 16), dtype=np.uint8), *(chunks.ids for chunks in parts)]),
        vectors=Vectors.encode(np.concatenate(vectors)) if vectors else None,
        without_vector=np.flatnonzero(~has_vector),
        collections=rows,
    )


def _build_rows(first: int, chunks: Chunks) -> CollectionRows:
    parts = [_NO_ENTRIES, *chunks.entries]
    offsets = np.concatenate([part.offsets for part in parts])
    is_kept = offsets >= 0
    offsets = offsets[is_kept]
    lexeme_ids = np.concatenate([part.lexeme_ids for part in parts])[is_kept]
    # Entries are sorted runs, one after the other, which a stable sort merges.
    order = np.argsort(lexeme_ids * (len(chunks.sequences) + 1) + offsets, kind="stable")
    distinct, starts = np.unique(lexeme_ids[order], return_index=True)
    return CollectionRows(
        first=first,
        chunks=Posting(offsets=chunks.sequences, frequencies=chunks.lengths),
        lexeme_ids=distinct,
        starts=np.append(starts, len(order)),
        offsets=offsets[order].astype(np.int32),
        frequencies=np.concatenate([part.frequencies for part in parts])[is_kept][order],
    )


def merge_small(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Merge small layers, so that each has several times the chunks of the next one."""
    merged: list[Layer] = []
    for layer in layers:
        merged.append(layer)
        while len(merged) > 1 and merged[-2].rows < _GROWTH * merged[-1].rows:
            last = merged.pop()
            merged[-1] = Layer(part=_merge(merged[-1], last))
        if merged[-1].rows * 2 < len(merged[-1].part.ids):
            merged[-1] = Layer(part=_merge(merged[-1]))
    return tuple(layer for layer in merged if layer.rows) or tuple(merged[:1])


def _merge(*layers: Layer) -> Part:
    names = dict.fromkeys(name for layer in layers for name in layer.part.collections)
    return build_part({name: _merge_collection(name, layers) for name in names})


def _merge_collection(name: str, layers: Sequence[Layer]) -> Chunks:
    """Return the chunks of one collection that are not deleted."""
    pieces = []
    for layer in layers:
        if (rows := layer.part.collections.get(name)) is not None:
            total = len(rows.chunks.offsets)
            deleted = None if layer.deleted is None else layer.deleted[rows.first : rows.first + total]
            pieces.append((layer.part, rows, np.arange(total) if deleted is None else np.flatnonzero(~deleted)))
    sequences = np.concatenate([rows.chunks.offsets[live] for _, rows, live in pieces])
    order = np.argsort(sequences, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    entries, start = [], 0
    for _, rows, live in pieces:
        moved = np.full(len(rows.chunks.offsets), -1, dtype=np.int64)
        moved[live] = place[start : start + len(live)]
        start += len(live)
        lexeme_ids = np.repeat(rows.lexeme_ids, np.diff(rows.starts))
        entries.append(Entries(lexeme_ids=lexeme_ids, offsets=moved[rows.offsets], frequencies=rows.frequencies))
    vectors = [part.vectors.exact[rows.first + live] for part, rows, live in pieces if part.vectors is not None]
    has_vector = []
    for part, rows, live in pieces:
        of_part = np.ones(len(part.ids), dtype=np.bool_)
        of_part[part.without_vector] = False
        has_vector.append(of_part[rows.first + live])
    return Chunks(
        sequences=sequences[order],
        lengths=np.concatenate([rows.chunks.frequencies[live] for _, rows, live in pieces])[order].astype(np.int32),
        ids=np.concatenate([part.ids[rows.first + live] for part, rows, live in pieces])[order],
        vectors=np.concatenate(vectors)[order] if vectors else None,
        has_vector=np.concatenate(has_vector)[order],
        entries=entries,
    )
