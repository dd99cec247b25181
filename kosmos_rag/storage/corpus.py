"""The lexical statistics of a corpus, which is one collection of one tenant: how a publication changes them.

Everything here that writes runs under the lock on the corpus (`lock_corpus`): publications of one corpus take turns.
"""

import re
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg
from pgvector import SparseVector

from kosmos_rag import bm25
from kosmos_rag.storage.slices import slices
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Lexemes of each chunk of a batch with their frequencies, in the order of the chunks."""

    tsvectors: list[str]
    frequencies: list[dict[str, int]]

    @cached_property
    def lengths(self) -> list[int]:
        """Length of each chunk: its lexemes with repetitions."""
        return [sum(chunk.values()) for chunk in self.frequencies]

    @property
    def chunk_counts(self) -> Counter[str]:
        """In how many of the chunks each lexeme stands."""
        return Counter(lexeme for chunk in self.frequencies for lexeme in chunk)


def analyse(connection: psycopg.Connection, texts: Sequence[str], languages: Sequence[str]) -> Analysis:
    """Analyse each text with the text search configuration beside it. Needs no lock."""
    rows = [
        row
        for columns in slices({"texts": list(texts), "languages": list(languages)})
        for row in connection.execute(statement("analyse"), columns).fetchall()
    ]
    tsvectors = [tsvector for (tsvector,) in rows]
    return Analysis(tsvectors=tsvectors, frequencies=[lexeme_frequencies(tsvector) for tsvector in tsvectors])


_LEXEME = re.compile(r"'((?:[^'\\]|''|\\\\)+)':([\d,]+)")


def lexeme_frequencies(tsvector: str) -> dict[str, int]:
    """Count the positions of each lexeme in the text form of a tsvector: `'churn':2,5 'rate':3`."""
    return {_unquoted(lexeme): positions.count(",") + 1 for lexeme, positions in _LEXEME.findall(tsvector)}


def _unquoted(lexeme: str) -> str:
    return lexeme.replace("''", "'").replace("\\\\", "\\") if "'" in lexeme or "\\" in lexeme else lexeme


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What leaves the statistics with some versions."""

    version_ids: list[uuid.UUID]
    chunks: int
    length: int
    lexemes: Counter[str]


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
) -> dict[str, int]:
    """Bring the statistics up to date; returns the id of each added lexeme."""
    ids, next_id = _change_lexemes(connection, scope, added.chunk_counts, removed.lexemes, corpus.next_lexeme_id)
    changes = {
        "chunks": len(added.frequencies) - removed.chunks,
        "length": sum(added.lengths) - removed.length,
        "next_lexeme_id": next_id,
        "next_serial": corpus.next_serial + len(added.frequencies),
    }
    connection.execute(statement("change_corpus"), {**scope, **changes})
    return ids


def _change_lexemes(
    connection: psycopg.Connection, scope: dict[str, Any], added: Counter[str], removed: Counter[str], next_id: int
) -> tuple[dict[str, int], int]:
    """Bring the document frequencies up to date; returns the id of each added lexeme and the next free id."""
    counts = {lexeme: added[lexeme] - removed[lexeme] for lexeme in sorted(added.keys() | removed.keys())}
    changes = {**scope, "lexemes": list(counts), "counts": list(counts.values())}
    if removed:
        connection.execute(statement("delete_lexemes"), changes)
    known: dict[str, int] = dict(connection.execute(statement("change_lexemes"), changes).fetchall())
    new = [lexeme for lexeme in counts if lexeme in added and lexeme not in known]
    ids = dict(zip(new, range(next_id, next_id + len(new)), strict=True))
    if new:
        values = {**scope, "lexemes": new, "ids": list(ids.values()), "counts": [added[lexeme] for lexeme in new]}
        connection.execute(statement("insert_lexemes"), values)
    return known | ids, next_id + len(new)


def saturated_terms(analysis: Analysis, lexeme_ids: dict[str, int], pivot: float) -> list[SparseVector]:
    """Return each chunk's saturated term frequencies as a `sparsevec` over lexeme ids.

    Ids count from 1 as the text form of a `sparsevec` does, the class from 0.
    """
    saturated = (
        bm25.saturated({lexeme_ids[lexeme] - 1: tf for lexeme, tf in frequencies.items()}, length, pivot)
        for frequencies, length in zip(analysis.frequencies, analysis.lengths, strict=True)
    )
    return [SparseVector(weights, bm25.DIMENSIONS) for weights in saturated]
