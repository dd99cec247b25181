"""Analyse texts for the lexical index: their lexemes with positions, as PostgreSQL's text search finds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.text.accents import accented_words
from kosmos_rag.core.text.analysis import index_text
from kosmos_rag.core.text.compounds import find_parts
from kosmos_rag.storage.binary import MAX_ROWS, array, batches
from kosmos_rag.storage.pool import flush
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Lexemes of a batch's chunks with frequencies, as parallel arrays."""

    tsvectors: list[bytes]
    """One for each chunk, in binary form."""
    vocabulary: list[str]
    """Distinct lexemes, sorted."""
    rows: NDArray[np.intp]
    """Chunk number of each entry, ascending."""
    lexemes: NDArray[np.intp]
    """Position of each entry's lexeme in the vocabulary."""
    frequencies: NDArray[np.intp]

    @cached_property
    def lengths(self) -> NDArray[np.intp]:
        """Length of each chunk: lexemes with repetitions."""
        return np.bincount(self.rows, weights=self.frequencies, minlength=len(self.tsvectors)).astype(np.intp)


_PARTS = 4
"""Statements that a batch of texts is sent in."""
_PART_TEXTS = 64
"""Texts of a statement at least."""


class TextAnalyser:
    """Has the server analyse texts; needs no lock.

    The texts are sent in parts: while the server analyses one, the client prepares the next one and parses the one
    before, or works between construction and `receive`, and between `receive` and `read`. The connection is in a
    pipeline.
    """

    def __init__(self, connection: psycopg.Connection, texts: Sequence[str], languages: Sequence[str]) -> None:
        """Send the first part.

        Args:
            connection: any connection to the database.
            texts: texts of chunks, before `index_text`.
            languages: text search configuration of each text.
        """
        self._connection = connection
        columns = {"text": list(texts), "language": list(languages)}
        self._parts = batches(columns, rows=min(MAX_ROWS, max(_PART_TEXTS, -(-len(texts) // _PARTS))))
        self._entries = _Entries()
        self._last: list[bytes] = []
        self._cursor = self._send()

    def receive(self) -> None:
        """Send the other parts, and wait for the results of all."""
        while (cursor := self._cursor) is not None:
            self._cursor = self._send()
            self._entries.add(self._last)
            self._last = [tsvector for (tsvector,) in cursor.fetchall()]

    def read(self) -> Analysis:
        """Return the result of all texts; parses the last part."""
        self.receive()
        self._entries.add(self._last)
        return self._entries.build()

    def _send(self) -> psycopg.Cursor | None:
        part = next(self._parts, None)
        if part is None:
            return None
        texts, languages = part["text"], part["language"]
        added = [
            f"{accented_words(text)} {find_parts(text, language)}".strip()
            for text, language in zip(texts, languages, strict=True)
        ]
        columns = {"texts": [index_text(text) for text in texts], "languages": languages, "added": added}
        values = {name: array(self._connection, "text", column) for name, column in columns.items()}
        cursor = self._connection.cursor(binary=True).execute(statement("analyse"), values)
        flush(self._connection)
        return cursor


def parse_tsvectors(tsvectors: list[bytes]) -> Analysis:
    """Parse tsvectors in binary form, as `tsvectorsend` of PostgreSQL writes them."""
    entries = _Entries()
    entries.add(tsvectors)
    return entries.build()


class _Entries:
    """Collects the lexemes of tsvectors."""

    def __init__(self) -> None:
        self._tsvectors: list[bytes] = []
        self._numbers: dict[bytes, int] = {}  # of the lexemes, in no order
        self._counts = [_NONE]
        self._lexemes = [_NONE]
        self._frequencies = [_NONE]

    def add(self, tsvectors: list[bytes]) -> None:
        data = np.frombuffer(b"".join(tsvectors), dtype=np.uint8)
        counts, starts, ends, frequencies = _find_lexemes(data, tsvectors)
        lexemes = _select_lexemes(data, starts, ends)
        new = set(lexemes).difference(self._numbers)
        self._numbers.update(zip(new, range(len(self._numbers), len(self._numbers) + len(new)), strict=True))
        self._tsvectors += tsvectors
        self._counts.append(counts)
        self._lexemes.append(np.fromiter(map(self._numbers.__getitem__, lexemes), dtype=np.intp, count=len(lexemes)))
        self._frequencies.append(frequencies)

    def build(self) -> Analysis:
        vocabulary = sorted(self._numbers)
        positions = np.empty(len(vocabulary), dtype=np.intp)
        numbers = np.fromiter(map(self._numbers.__getitem__, vocabulary), dtype=np.intp, count=len(vocabulary))
        positions[numbers] = np.arange(len(vocabulary))
        counts = np.concatenate(self._counts)
        return Analysis(
            tsvectors=self._tsvectors,
            # No lexeme has a NUL, so one call decodes all.
            vocabulary=b"\0".join(vocabulary).decode().split("\0") if vocabulary else [],
            rows=np.repeat(np.arange(len(counts)), counts),
            lexemes=positions[np.concatenate(self._lexemes)],
            frequencies=np.concatenate(self._frequencies),
        )


_NONE = np.empty(0, dtype=np.intp)


def _find_lexemes(
    data: NDArray[np.uint8], tsvectors: list[bytes]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return how many lexemes each tsvector has, and start, end and frequency of each lexeme.

    A tsvector is the number of lexemes (4 bytes), then for each lexeme its text, a NUL, the number of its positions
    (2 bytes) and the positions (2 bytes each), big-endian. The start of a lexeme follows from the one before, so this
    vectorises over the tsvectors: it reads the first lexeme of all, then the second one, and so on.

    Args:
        data: the tsvectors, one after the other.
        tsvectors: the same.
    """
    zeros = np.flatnonzero(data == 0)
    sizes = np.array([len(tsvector) for tsvector in tsvectors], dtype=np.intp)
    counts = np.array([int.from_bytes(tsvector[:4], "big") for tsvector in tsvectors], dtype=np.intp)
    slots = np.cumsum(counts) - counts
    starts, ends, frequencies = np.empty((3, int(counts.sum())), dtype=np.intp)
    starts_at = np.cumsum(sizes) - sizes + 4
    for number in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > number)
        slot, start = slots[rows] + number, starts_at[rows]
        end = zeros[np.searchsorted(zeros, start)]
        positions = data[end + 1].astype(np.intp) << 8 | data[end + 2]
        starts[slot], ends[slot], frequencies[slot] = start, end, positions
        starts_at[rows] = end + 3 + 2 * positions
    return counts, starts, ends, frequencies


def _select_lexemes(data: NDArray[np.uint8], starts: NDArray[np.intp], ends: NDArray[np.intp]) -> list[bytes]:
    """Return what is between each start and the NUL at its end; the starts ascend."""
    steps = np.zeros(len(data) + 1, dtype=np.int8)
    steps[starts] = 1
    steps[ends + 1] = -1
    selected: bytes = data[np.cumsum(steps[:-1], dtype=np.int8).view(bool)].tobytes()
    return selected.split(b"\0")[:-1]
