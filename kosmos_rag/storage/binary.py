"""Arrays in PostgreSQL's binary form, a column at a time.

psycopg's own adapter of lists asks for the type of each value, which takes a batch of chunks longer than all else that
is done for it here.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.adapt import Dumper
from psycopg.pq import Format


def pack_numbers(numbers: NDArray[np.integer]) -> bytes:
    """Return offsets, sequences or lengths as little-endian int32."""
    packed: bytes = numbers.astype("<i4").tobytes()
    return packed


def unpack_numbers(packed: bytes) -> NDArray[np.int32]:
    """Return what `pack_numbers` packed, as a view of the bytes."""
    return np.frombuffer(packed, dtype="<i4")


@dataclass(frozen=True, kw_only=True, slots=True)
class SparseEntries:
    """Entries of several sparse vectors, one after the other."""

    rows: NDArray[np.intp]
    """Which vector an entry is of, from 0, ascending."""
    lexeme_ids: NDArray[np.int64]
    """Ascending within a row."""
    values: NDArray[np.float32]


def sparse_entries(vectors: Sequence[bytes]) -> SparseEntries:
    """Parse vectors in the binary format of `sparsevec_send`.

    Dimensions, count and a reserved word, then indices and values.

    All are big-endian and four bytes wide, indices from 0; ids of lexemes count from 1.
    """
    words = np.frombuffer(b"".join(vectors), dtype=">i4")
    # A header of three words, then as many indices as values.
    counts = np.array([len(vector) // 8 - 1 for vector in vectors], dtype=np.intp)
    rows = np.repeat(np.arange(len(vectors)), counts)
    # Before an entry are the headers up to its vector, and two words for each entry of the vectors before.
    first = np.cumsum(counts) - counts
    positions = np.arange(len(rows)) + (3 * (rows + 1) + first[rows])
    return SparseEntries(
        rows=rows,
        lexeme_ids=words[positions].astype(np.int64) + 1,
        values=words[positions + counts[rows]].view(">f4").astype(np.float32),
    )


_HEADER = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i")
_UUID_LENGTH = _LENGTH.pack(16)
_SPARSE_HEADER = struct.Struct(">iii")


class Array(bytes):
    """A parameter made by `array`. The statement casts it: `%(ids)b::uuid[]`."""


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:
        return obj


def register_arrays(connection: psycopg.Connection) -> None:
    """Register the parameters that `array` makes on a connection."""
    connection.adapters.register_dumper(Array, _ArrayDumper)


def array(connection: psycopg.Connection, kind: str, values: Sequence[Any] | NDArray[Any]) -> Array:
    """Encode values without nulls as a binary array.

    Args:
        connection: Knows the type.
        kind: The element type, a key of `ENCODERS`.
        values: The elements.
    """
    oid = connection.adapters.types[kind].oid
    return Array(_HEADER.pack(1, 0, oid, len(values), 1) + ENCODERS[kind](values))


def _frame(elements: Sequence[bytes]) -> bytes:
    lengths = map(_LENGTH.pack, map(len, elements))
    return b"".join(chain.from_iterable(zip(lengths, elements, strict=True)))


def _uuids(values: Sequence[UUID] | Sequence[bytes]) -> bytes:
    """Encode UUIDs, or their bytes."""
    if values and isinstance(values[0], bytes):
        return b"".join([_UUID_LENGTH + value for value in cast("Sequence[bytes]", values)])
    # Values repeat: rows of one document, or with the same acl. `int` is hashed faster than the UUID.
    numbers = [value.int for value in cast("Sequence[UUID]", values)]
    frames = {number: _UUID_LENGTH + number.to_bytes(16) for number in set(numbers)}
    return b"".join([frames[number] for number in numbers])


def _texts(values: Sequence[str]) -> bytes:
    # One call encodes all of them. No text has a NUL: the server refuses the one that has, as it is sent then.
    encoded = "\0".join(values).encode().split(b"\0") if values else []
    return _frame(encoded if len(encoded) == len(values) else [value.encode() for value in values])


def _integers(values: Sequence[int]) -> bytes:
    framed = np.empty((len(values), 2), dtype=">i4")
    framed[:, 0] = 4
    framed[:, 1] = values
    return framed.tobytes()


def _long_integers(values: Sequence[int]) -> bytes:
    framed = np.empty(len(values), dtype=[("length", ">i4"), ("value", ">i8")])
    framed["length"] = 8
    framed["value"] = values
    return framed.tobytes()


def _objects(values: Sequence[Any]) -> bytes:
    """Encode values as JSON in the binary format of `jsonb_recv`: a version, then the text."""
    return _frame([b"\1" + json.dumps(value).encode() for value in values])


def _halfvecs(vectors: Sequence[NDArray[np.floating]]) -> bytes:
    """Encode vectors of equal length in the binary format of `halfvec_recv`.

    Dimensions and a reserved word, then the values.
    """
    dimensions = len(vectors[0]) if len(vectors) else 0
    framed = np.empty(
        len(vectors), dtype=[("length", ">i4"), ("dimensions", ">i2"), ("unused", ">i2"), ("values", ">f2", dimensions)]
    )
    framed["length"] = 4 + 2 * dimensions
    framed["dimensions"] = dimensions
    framed["unused"] = 0
    if dimensions:
        framed["values"] = vectors
    return framed.tobytes()


ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "uuid": _uuids,
    "int4": _integers,
    "int8": _long_integers,
    "text": _texts,
    "jsonb": _objects,
    "halfvec": _halfvecs,
    # Given in binary form.
    "bytea": _frame,
    "tsvector": _frame,
    "sparsevec": _frame,
}
"""Encoders of array elements by type."""


def array_literal(values: Iterable[str]) -> str:
    """Render an array as text.

    Rows of an unnested array cannot be arrays of different lengths. A short array is encoded faster as text too.
    """
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


def sparse_vectors(weights: SparseEntries, rows: int, dimensions: int) -> list[bytes]:
    """Encode vectors in the binary format of `sparsevec_recv`.

    `sparse_entries` reads it.

    Args:
        rows: Number of vectors.
    """
    indices = (weights.lexeme_ids - 1).astype(">i4").tobytes()
    values = weights.values.astype(">f4").tobytes()
    ends = (4 * np.cumsum(np.bincount(weights.rows, minlength=rows))).tolist()
    return [
        _SPARSE_HEADER.pack(dimensions, (end - start) // 4, 0) + indices[start:end] + values[start:end]
        for start, end in zip([0, *ends], ends, strict=False)
    ]


MAX_ROWS = 4096
"""Maximum rows of one statement, so that a large document stays within the statement timeout."""


def batches(columns: dict[str, list[Any]], *, rows: int = MAX_ROWS) -> Iterator[dict[str, list[Any]]]:
    """Yield slices of equal-length columns, one for each statement."""
    for start in range(0, len(next(iter(columns.values()))), rows):
        yield {name: values[start : start + rows] for name, values in columns.items()}
