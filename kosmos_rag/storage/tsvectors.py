"""Tsvectors in PostgreSQL's binary form, many at a time.

A tsvector is the number of lexemes (4 bytes), then for each lexeme its text, a NUL, the number of its positions
(2 bytes) and the positions (2 bytes each), big-endian.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class LexemePlaces:
    """Where the lexemes of tsvectors are in their bytes, as parallel arrays in no order."""

    packed: bytes
    """The tsvectors, one after the other."""
    rows: NDArray[np.intp]
    """Number of the tsvector of each lexeme."""
    starts: NDArray[np.intp]
    ends: NDArray[np.intp]
    frequencies: NDArray[np.intp]
    """Number of positions."""

    def read_lexemes(self) -> list[bytes]:
        """Return the text of each lexeme."""
        places = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [self.packed[start:end] for start, end in places]

    def read_positions(self) -> NDArray[np.intp]:
        """Return the positions of all lexemes, those of one after those of another."""
        firsts = np.cumsum(self.frequencies) - self.frequencies
        within = np.arange(int(self.frequencies.sum())) - np.repeat(firsts, self.frequencies)
        places = np.repeat(self.ends + 3, self.frequencies) + 2 * within
        data = np.frombuffer(self.packed, dtype=np.uint8)
        positions: NDArray[np.intp] = (data[places].astype(np.intp) << 8 | data[places + 1]) & 0x3FFF
        return positions


def locate_lexemes(tsvectors: Sequence[bytes]) -> LexemePlaces:
    """Find the lexemes of tsvectors.

    The start of a lexeme follows from the one before, so this vectorises over the tsvectors: it reads the first lexeme
    of all, then the second one, and so on.
    """
    packed = b"".join(tsvectors)
    data = np.frombuffer(packed, dtype=np.uint8)
    zeros = np.flatnonzero(data == 0)
    sizes = np.array([len(tsvector) for tsvector in tsvectors], dtype=np.intp)
    stops = np.cumsum(sizes)
    starts_at = stops - sizes + 4
    entries = [np.empty((4, 0), dtype=np.intp)]
    while len(rows := np.flatnonzero(starts_at < stops)):
        ends = zeros[np.searchsorted(zeros, starts_at[rows])]
        positions = data[ends + 1].astype(np.intp) << 8 | data[ends + 2]
        entries.append(np.stack([rows, starts_at[rows], ends, positions]))
        starts_at[rows] = ends + 3 + 2 * positions
    rows, starts, ends, frequencies = np.hstack(entries)
    return LexemePlaces(packed=packed, rows=rows, starts=starts, ends=ends, frequencies=frequencies)


@dataclass(frozen=True, kw_only=True, slots=True)
class LexemeEntries:
    """The lexemes of texts, as parallel arrays, by text and then by lexeme."""

    vocabulary: list[bytes]
    """Distinct lexemes, sorted."""
    rows: NDArray[np.intp]
    lexemes: NDArray[np.intp]
    """Position of each entry's lexeme in the vocabulary."""
    frequencies: NDArray[np.intp]
    positions: NDArray[np.intp]
    """Those of the first entry, then of the second one, and so on, ascending within an entry."""


def encode_tsvectors(entries: LexemeEntries, rows: int) -> list[bytes]:
    """Encode the tsvectors of texts in the binary format of `tsvectorrecv`.

    Args:
        rows: number of texts.
    """
    lengths = np.array([len(lexeme) for lexeme in entries.vocabulary], dtype=np.intp)
    blob = np.frombuffer(b"".join(entries.vocabulary), dtype=np.uint8)
    sizes = lengths[entries.lexemes]
    counts = np.bincount(entries.rows, minlength=rows)
    # Lexeme, NUL, number of positions, positions. Before the first entry of a row comes the number of its entries.
    entry_sizes = sizes + 3 + 2 * entries.frequencies
    entry_starts = np.cumsum(entry_sizes) - entry_sizes + 4 * (entries.rows + 1)
    row_sizes = np.bincount(entries.rows, weights=entry_sizes, minlength=rows).astype(np.intp)
    row_ends = np.cumsum(row_sizes + 4)
    packed = np.zeros(int(row_ends[-1]) if rows else 0, dtype=np.uint8)
    _write_numbers(packed, row_ends - row_sizes - 4, counts, width=4)
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    blob_starts = (np.cumsum(lengths) - lengths)[entries.lexemes]
    packed[np.repeat(entry_starts, sizes) + within] = blob[np.repeat(blob_starts, sizes) + within]
    _write_numbers(packed, entry_starts + sizes + 1, entries.frequencies, width=2)
    frequencies = entries.frequencies
    nth = np.arange(len(entries.positions)) - np.repeat(np.cumsum(frequencies) - frequencies, frequencies)
    _write_numbers(packed, np.repeat(entry_starts + sizes + 3, frequencies) + 2 * nth, entries.positions, width=2)
    content = packed.tobytes()
    ends = row_ends.tolist()
    return [content[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _write_numbers(
    packed: NDArray[np.uint8], places: NDArray[np.intp], numbers: NDArray[np.intp], *, width: int
) -> None:
    """Write big-endian numbers at places of a buffer."""
    for byte in range(width):
        packed[places + byte] = (numbers >> 8 * (width - 1 - byte)) & 0xFF
