"""The lexical statistics of a corpus, which is one collection of one tenant: how a publication changes them.

Everything here that writes runs under the lock on the corpus (`lock_corpus`): publications of one corpus take turns.
"""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.text import bm25
from kosmos_rag.storage.binary import Array, Weights, array, array_literal, slices, sparse_vectors
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


Readers = tuple[str, ...]
"""The principals that may read a chunk, as they are stored with it."""


def _id_of(readers: Readers) -> uuid.UUID:
    """Return what stands for a list of readers in keys: it may be longer than a key can be."""
    return uuid.UUID(bytes=hashlib.sha256(array_literal(readers).encode()).digest()[:16])


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What chunks with the same readers add to the statistics."""

    chunks: int = 0
    length: int = 0
    lexemes: Mapping[str, int] = field(default_factory=dict)
    """In how many of the chunks each stands."""
    languages: frozenset[str] = frozenset()
    """Those that chunks to be added were analysed in."""


def counted(analysis: Analysis, readers: Sequence[Readers], languages: Sequence[str]) -> dict[Readers, Counts]:
    """Return what analysed chunks add to the statistics, given readers and language of each."""
    numbers = {names: number for number, names in enumerate(dict.fromkeys(readers))}
    of_chunk = np.array([numbers[names] for names in readers], dtype=np.intp)
    found = {}
    for names, number in numbers.items():
        mine = of_chunk == number
        counts = np.bincount(analysis.lexemes[mine[analysis.rows]], minlength=len(analysis.vocabulary))
        held = np.flatnonzero(counts).tolist()
        found[names] = Counts(
            chunks=int(mine.sum()),
            length=int(analysis.lengths[mine].sum()),
            lexemes=dict(zip([analysis.vocabulary[at] for at in held], counts[held].tolist(), strict=True)),
            languages=frozenset(languages[at] for at in np.flatnonzero(mine).tolist()),
        )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What leaves the statistics with some versions."""

    version_ids: list[uuid.UUID]
    counts: Mapping[Readers, Counts]

    @property
    def chunks(self) -> int:
        """How many chunks leave."""
        return sum(counts.chunks for counts in self.counts.values())

    @property
    def length(self) -> int:
        """Length of all of them."""
        return sum(counts.length for counts in self.counts.values())


def removal(connection: psycopg.Connection, tenant_id: uuid.UUID, version_ids: list[uuid.UUID]) -> Removal:
    """Return what these versions add to the statistics of their corpus."""
    scope = {"tenant_id": tenant_id, "version_ids": version_ids}
    sizes = connection.execute(statement("size_of_documents"), scope).fetchall() if version_ids else ()
    rows = connection.execute(statement("lexemes_of_documents"), scope).fetchall() if version_ids else ()
    lexemes = {tuple(acl): dict(zip(names, counts, strict=True)) for acl, names, counts in rows}
    return Removal(
        version_ids=version_ids,
        counts={
            tuple(acl): Counts(chunks=chunks, length=length, lexemes=lexemes.get(tuple(acl), {}))
            for acl, chunks, length in sizes
        },
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """The statistics of a corpus as the lock on it found them."""

    chunks: int
    length: int
    next_lexeme_id: int
    next_sequence: int


def lock(connection: psycopg.Connection, scope: dict[str, Any]) -> Corpus | None:
    """Lock the corpus until the transaction ends; None where there is no such corpus."""
    row = connection.execute(statement("lock_collection"), scope).fetchone()
    return None if row is None else Corpus(chunks=row[0], length=row[1], next_lexeme_id=row[2], next_sequence=row[3])


def change(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    corpus: Corpus,
    added: Mapping[Readers, Counts],
    removed: Removal,
) -> dict[str, int]:
    """Bring the statistics up to date; returns the id of each added lexeme."""
    ids, next_id = _change_lexemes(connection, scope, added, removed.counts, corpus.next_lexeme_id)
    chunks = sum(counts.chunks for counts in added.values())
    changes = {
        "chunks": chunks - removed.chunks,
        "length": sum(counts.length for counts in added.values()) - removed.length,
        "next_lexeme_id": next_id,
        "next_sequence": corpus.next_sequence + chunks,
    }
    for (epoch,) in connection.execute(statement("update_collection_statistics"), {**scope, **changes}):
        _change_readers(connection, {**scope, "epoch": epoch}, added, removed.counts)
    return ids


def _change_readers(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    added: Mapping[Readers, Counts],
    removed: Mapping[Readers, Counts],
) -> None:
    none = Counts()
    changes = [(names, added.get(names, none), removed.get(names, none)) for names in {**added, **removed}]
    values = {
        "acl_hashes": [_id_of(names) for names, _, _ in changes],
        "acls": [array_literal(names) for names, _, _ in changes],
        "chunks": [new.chunks - old.chunks for _, new, old in changes],
        "added": [new.chunks for _, new, _ in changes],
        "lengths": [new.length - old.length for _, new, old in changes],
        "languages": [array_literal(sorted(new.languages)) for _, new, _ in changes],
    }
    connection.execute(statement("update_acl_statistics"), {**scope, **values})
    connection.execute(statement("update_acl_languages"), {**scope, **values})


_Pair = tuple[str, Readers]


def _change_lexemes(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    added: Mapping[Readers, Counts],
    removed: Mapping[Readers, Counts],
    next_id: int,
) -> tuple[dict[str, int], int]:
    """Bring the document frequencies up to date; returns the ids of the added lexemes and the next free one."""
    new: dict[_Pair, int] = {
        (lexeme, names): count for names, counts in added.items() for lexeme, count in counts.lexemes.items()
    }
    changes = new.copy()
    for names, counts in removed.items():
        for lexeme, count in counts.lexemes.items():
            changes[lexeme, names] = changes.get((lexeme, names), 0) - count
    values = {**scope, **_lexeme_columns(connection, changes)}
    if removed:
        connection.execute(statement("delete_lexemes"), values)
    pairs, ids = list(changes), {}
    for number, lexeme_id in connection.cursor(binary=True).execute(statement("update_lexemes"), values).fetchall():
        ids[pairs[number - 1][0]] = lexeme_id
        new.pop(pairs[number - 1], None)
    return _insert_lexemes(connection, scope, new, ids, next_id)


def _insert_lexemes(
    connection: psycopg.Connection, scope: dict[str, Any], new: Mapping[_Pair, int], ids: dict[str, int], next_id: int
) -> tuple[dict[str, int], int]:
    """Insert lexemes that chunks with these readers did not hold; returns all ids and the next free one."""
    unknown = [lexeme for lexeme in dict.fromkeys(lexeme for lexeme, _ in new) if lexeme not in ids]
    if unknown:
        values = {**scope, "lexemes": array(connection, "text", unknown)}
        ids = ids | dict(connection.cursor(binary=True).execute(statement("lexeme_ids"), values).fetchall())
        unknown = [lexeme for lexeme in unknown if lexeme not in ids]
        ids |= zip(unknown, range(next_id, next_id + len(unknown)), strict=True)
    if new:
        columns = _lexeme_columns(connection, new)
        columns["ids"] = array(connection, "int4", [ids[lexeme] for lexeme, _ in new])
        connection.execute(statement("insert_lexemes"), {**scope, **columns})
    return ids, next_id + len(unknown)


def _lexeme_columns(connection: psycopg.Connection, counts: Mapping[_Pair, int]) -> dict[str, Array]:
    lists = {names for _, names in counts}
    literals, ids = {names: array_literal(names) for names in lists}, {names: _id_of(names) for names in lists}
    return {
        "lexemes": array(connection, "text", [lexeme for lexeme, _ in counts]),
        "acl_hashes": array(connection, "uuid", [ids[names] for _, names in counts]),
        "acls": array(connection, "text", [literals[names] for _, names in counts]),
        "counts": array(connection, "int4", list(counts.values())),
    }


def saturated_terms(analysis: Analysis, lexeme_ids: Mapping[str, int], pivot: float) -> list[bytes]:
    """Return each chunk's saturated term frequencies as a `sparsevec` over lexeme ids, in binary form."""
    ids = np.array([lexeme_ids[lexeme] for lexeme in analysis.vocabulary], dtype=np.intp)[analysis.lexemes]
    order = np.lexsort((ids, analysis.rows))
    norms = bm25.norms(analysis.lengths.astype(np.float64), pivot)[analysis.rows]
    weights = bm25.contributions(analysis.frequencies.astype(np.float64), norms, 1.0)
    entries = Weights(rows=analysis.rows[order], lexeme_ids=ids[order], values=weights[order].astype(np.float32))
    return sparse_vectors(entries, len(analysis.tsvectors), bm25.DIMENSIONS)
