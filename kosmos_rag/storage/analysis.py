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
from kosmos_rag.storage.binary import array, batches
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Lexemes of a batch's chunks with frequencies, as parallel arrays."""

    tsvectors: list[bytes]
    """One for each chunk, in binary form."""
    vocabulary: list[str]
    """Distinct lexemes, sorted."""
    rows: NDArray[np.intp]
    """Chunk number of each entry; entries are in no order."""
    lexemes: NDArray[np.intp]
    """Position of each entry's lexeme in the vocabulary."""
    frequencies: NDArray[np.intp]

    @cached_property
    def lengths(self) -> NDArray[np.intp]:
        """Length of each chunk: lexemes with repetitions."""
        return np.bincount(self.rows, weights=self.frequencies, minlength=len(self.tsvectors)).astype(np.intp)


def send_texts(connection: psycopg.Connection, texts: Sequence[str], languages: Sequence[str]) -> list[psycopg.Cursor]:
    """Send texts for analysis; needs no lock.

    `read_analysis` waits for the result. In a pipeline the server analyses while the client continues.

    Args:
        connection: any connection to the database.
        texts: texts to analyse.
        languages: text search configuration of each text.
    """
    cursors = []
    analysed = {
        "texts": [index_text(text) for text in texts],
        "languages": list(languages),
        "added": [
            f"{accented_words(text)} {find_parts(text, language)}".strip()
            for text, language in zip(texts, languages, strict=True)
        ],
    }
    for columns in batches(analysed):
        values = {name: array(connection, "text", column) for name, column in columns.items()}
        cursors.append(connection.cursor(binary=True).execute(statement("analyse"), values))
    return cursors


def read_analysis(cursors: Sequence[psycopg.Cursor]) -> Analysis:
    """Read the result of `send_texts`."""
    return parse_tsvectors([tsvector for cursor in cursors for (tsvector,) in cursor.fetchall()])


def parse_tsvectors(tsvectors: list[bytes]) -> Analysis:
    """Parse tsvectors in binary form, as `tsvectorsend` of PostgreSQL writes them.

    A tsvector is the number of lexemes (4 bytes), then for each lexeme its text, a NUL, the number of its positions
    (2 bytes) and the positions (2 bytes each), big-endian. The start of a lexeme follows from the one before, so this
    vectorises over the tsvectors: it reads the first lexeme of all, then the second one, and so on.
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
    lexemes = [packed[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    numbers = {lexeme: number for number, lexeme in enumerate(sorted(set(lexemes)))}
    return Analysis(
        tsvectors=tsvectors,
        vocabulary=[lexeme.decode() for lexeme in numbers],
        rows=rows,
        lexemes=np.fromiter(map(numbers.__getitem__, lexemes), dtype=np.intp, count=len(lexemes)),
        frequencies=frequencies,
    )
