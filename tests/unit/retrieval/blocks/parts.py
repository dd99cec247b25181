"""Parts of blocks for tests, made of chunks as dictionaries of words."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.retrieval.blocks.block import Part
from kosmos_rag.retrieval.blocks.building import Chunks, Entries, build_part

Words = Mapping[int, int]
"""Frequencies by id of the lexeme."""


def make_chunks(chunks: Mapping[int, Words], vectors: NDArray[np.floating] | None = None) -> Chunks:
    """Return chunks by sequence number; the id of a chunk is its sequence number."""
    sequences = sorted(chunks)
    pairs = [
        (place, lexeme, chunks[number][lexeme]) for place, number in enumerate(sequences) for lexeme in chunks[number]
    ]
    return Chunks(
        sequences=np.array(sequences, dtype=np.int32),
        lengths=np.array([sum(chunks[number].values()) for number in sequences], dtype=np.int32),
        ids=np.frombuffer(b"".join(number.to_bytes(16) for number in sequences), dtype=np.uint8).reshape(-1, 16),
        vectors=None if vectors is None else vectors.astype(np.float16),
        has_vector=np.ones(len(sequences), dtype=np.bool_),
        entries=[
            Entries(
                lexeme_ids=np.array([lexeme for _, lexeme, _ in pairs], dtype=np.int64),
                offsets=np.array([place for place, _, _ in pairs], dtype=np.int64),
                frequencies=np.array([frequency for *_, frequency in pairs], dtype=np.uint8),
            )
        ],
    )


def make_part(vectors: NDArray[np.floating]) -> Part:
    """Return a part of chunks without words."""
    return build_part({"default": make_chunks({number: {} for number in range(len(vectors))}, vectors)})


def read_part(part: Part) -> dict[str, dict[int, dict[int, int]]]:
    """Return the chunks of a part by collection and sequence number."""
    read: dict[str, dict[int, dict[int, int]]] = {}
    for name, rows in part.collections.items():
        chunks: dict[int, dict[int, int]] = {sequence: {} for sequence in rows.chunks.offsets.tolist()}
        places = list(chunks)
        lexeme_ids = rows.lexeme_ids.tolist()
        for lexeme, (_, posting) in zip(lexeme_ids, rows.find(dict.fromkeys(lexeme_ids, 1.0)), strict=True):
            for offset, frequency in zip(posting.offsets.tolist(), posting.frequencies.tolist(), strict=True):
                chunks[places[offset]][lexeme] = frequency
        read[name] = chunks
    return read
