"""The lexical statistics of a corpus, which is one collection of one tenant: how a publication changes them.

Everything here that writes runs under the lock on the corpus (`lock_corpus`): publications of one corpus take turns.
"""

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag import bm25
from kosmos_rag.storage.arrays import Array, array, sparse_vectors
from kosmos_rag.storage.packed import Weights
from kosmos_rag.storage.slices import slices
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The lexemes of each chunk of a batch with their frequencies, in the order of the chunks."""

    tsvectors: list[bytes]
    """In binary form."""
    vocabulary: list[str]
    """The distinct lexemes, ascending."""
    rows: NDArray[np.intp]
    """Which chunk an entry is of. Entries are in no order."""
    lexemes: NDArray[np.intp]
    """The entry's place in the vocabulary."""
    frequencies: NDArray[np.intp]

    @cached_property
    def lengths(self) -> NDArray[np.intp]:
        """Length of each chunk: its lexemes with repetitions."""
        return np.bincount(self.rows, weights=self.frequencies, minlength=len(self.tsvectors)).astype(np.intp)

    @property
    def chunk_counts(self) -> list[int]:
        """In how many of the chunks each lexeme of the vocabulary stands."""
        counts: list[int] = np.bincount(self.lexemes, minlength=len(self.vocabulary)).tolist()
        return counts


def analyse(connection: psycopg.Connection, texts: Sequence[str], languages: Sequence[str]) -> Analysis:
    """Analyse each text with the text search configuration beside it. Needs no lock."""
    cursor = connection.cursor(binary=True)
    tsvectors: list[bytes] = []
    for columns in slices({"texts": list(texts), "languages": list(languages)}):
        values = {name: array(connection, "text", column) for name, column in columns.items()}
        tsvectors += [tsvector for (tsvector,) in cursor.execute(statement("analyse"), values).fetchall()]
    return analysis_of(tsvectors)


def analysis_of(tsvectors: list[bytes]) -> Analysis:
    """Return what these tsvectors hold, given in binary form.

    That is the number of lexemes, in four bytes, and of each lexeme its text, a NUL, the number of its positions and
    the positions, all in two bytes, big-endian. Where one begins follows from the one before: the first ones of all
    tsvectors are found together, then the second ones, and so on.
    """
    packed = b"".join(tsvectors)
    data = np.frombuffer(packed, dtype=np.uint8)
    zeros = np.flatnonzero(data == 0)
    sizes = np.array([len(tsvector) for tsvector in tsvectors], dtype=np.intp)
    stops = np.cumsum(sizes)
    at = stops - sizes + 4
    found = [np.empty((4, 0), dtype=np.intp)]
    while len(rows := np.flatnonzero(at < stops)):
        ends = zeros[np.searchsorted(zeros, at[rows])]
        positions = data[ends + 1].astype(np.intp) << 8 | data[ends + 2]
        found.append(np.stack([rows, at[rows], ends, positions]))
        at[rows] = ends + 3 + 2 * positions
    rows, starts, ends, frequencies = np.hstack(found)
    lexemes = [packed[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    place = {lexeme: number for number, lexeme in enumerate(sorted(set(lexemes)))}
    return Analysis(
        tsvectors=tsvectors,
        vocabulary=[lexeme.decode() for lexeme in place],
        rows=rows,
        lexemes=np.array([place[lexeme] for lexeme in lexemes], dtype=np.intp),
        frequencies=frequencies,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What leaves the statistics with some versions."""

    version_ids: list[uuid.UUID]
    chunks: int
    length: int
    lexemes: Counter[str]
    """In how many of its chunks each stands."""


def removal(connection: psycopg.Connection, tenant_id: uuid.UUID, version_ids: list[uuid.UUID]) -> Removal:
    """Return what these versions add to the statistics of their corpus."""
    scope = {"tenant_id": tenant_id, "version_ids": version_ids}
    size = connection.execute(statement("size_of_documents"), scope).fetchone() if version_ids else None
    rows = connection.execute(statement("lexemes_of_documents"), scope) if version_ids else ()
    chunks, length = size or (0, 0)
    return Removal(version_ids=version_ids, chunks=chunks, length=length, lexemes=Counter(dict(rows)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """The statistics of a corpus as the lock on it found them."""

    chunks: int
    length: int
    next_lexeme_id: int
    next_serial: int


def lock(connection: psycopg.Connection, scope: dict[str, Any]) -> Corpus | None:
    """Lock the corpus until the transaction ends; None where there is no such corpus."""
    row = connection.execute(statement("lock_corpus"), scope).fetchone()
    return None if row is None else Corpus(chunks=row[0], length=row[1], next_lexeme_id=row[2], next_serial=row[3])


def change(
    connection: psycopg.Connection, scope: dict[str, Any], corpus: Corpus, added: Analysis, removed: Removal
) -> NDArray[np.intp]:
    """Bring the statistics up to date; returns the id of each lexeme of the added vocabulary."""
    ids, next_id = _change_lexemes(connection, scope, added, removed.lexemes, corpus.next_lexeme_id)
    changes = {
        "chunks": len(added.tsvectors) - removed.chunks,
        "length": int(added.lengths.sum()) - removed.length,
        "next_lexeme_id": next_id,
        "next_serial": corpus.next_serial + len(added.tsvectors),
    }
    connection.execute(statement("change_corpus"), {**scope, **changes})
    return ids


def _change_lexemes(
    connection: psycopg.Connection, scope: dict[str, Any], added: Analysis, removed: Counter[str], next_id: int
) -> tuple[NDArray[np.intp], int]:
    """Bring the document frequencies up to date; returns the ids of the added vocabulary and the next free one."""
    counts = dict(zip(added.vocabulary, added.chunk_counts, strict=True))
    changes = counts | {lexeme: counts.get(lexeme, 0) - count for lexeme, count in removed.items()}
    values = {**scope, **_lexeme_columns(connection, changes)}
    if removed:
        connection.execute(statement("delete_lexemes"), values)
    lexemes = list(changes)
    found = connection.cursor(binary=True).execute(statement("change_lexemes"), values).fetchall()
    ids = {lexemes[number - 1]: lexeme_id for number, lexeme_id in found}
    new = {lexeme: count for lexeme, count in counts.items() if lexeme not in ids}
    if new:
        ids |= zip(new, range(next_id, next_id + len(new)), strict=True)
        values = {**scope, **_lexeme_columns(connection, new), "next_id": next_id}
        connection.execute(statement("insert_lexemes"), values)
    return np.array([ids[lexeme] for lexeme in added.vocabulary], dtype=np.intp), next_id + len(new)


def _lexeme_columns(connection: psycopg.Connection, counts: dict[str, int]) -> dict[str, Array]:
    return {
        "lexemes": array(connection, "text", list(counts)),
        "counts": array(connection, "int4", list(counts.values())),
    }


def saturated_terms(analysis: Analysis, lexeme_ids: NDArray[np.intp], pivot: float) -> list[bytes]:
    """Return each chunk's saturated term frequencies as a `sparsevec` over lexeme ids, in binary form."""
    ids = lexeme_ids[analysis.lexemes]
    order = np.lexsort((ids, analysis.rows))
    norms = bm25.norms(analysis.lengths.astype(np.float64), pivot)[analysis.rows]
    weights = bm25.contributions(analysis.frequencies.astype(np.float64), norms, 1.0)
    entries = Weights(rows=analysis.rows[order], lexeme_ids=ids[order], values=weights[order].astype(np.float32))
    return sparse_vectors(entries, len(analysis.tsvectors), bm25.DIMENSIONS)
