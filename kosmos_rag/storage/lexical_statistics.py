"""Update the lexical statistics of a collection.

They are counts by access control list, and document frequencies.

Every write here runs under the lock on the collection (`lock_collection`): its publications run one after another.
"""

import hashlib
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.text import bm25
from kosmos_rag.storage.analysis import Analysis
from kosmos_rag.storage.binary import Array, SparseEntries, array, array_literal, sparse_vectors
from kosmos_rag.storage.sql import statement

Acl = tuple[str, ...]
"""The access control list of a chunk: the principals that may read it."""


def _acl_hash(acl: Acl) -> uuid.UUID:
    """Return the hash of an access control list, for keys.

    The list may be too long for a key.
    """
    return uuid.UUID(bytes=hashlib.sha256(array_literal(acl).encode()).digest()[:16])


@dataclass(frozen=True, kw_only=True, slots=True)
class LexicalCounts:
    """Contribution of chunks with the same access control list to the statistics."""

    chunks: int = 0
    length: int = 0
    lexemes: Mapping[str, int] = field(default_factory=dict)
    """Number of chunks that contain each lexeme."""
    languages: frozenset[str] = frozenset()
    """Text search configurations of the added chunks."""


@dataclass(frozen=True, slots=True)
class _LexemeColumns:
    """Numbers of chunks by lexeme and access control list, in columns."""

    lexemes: list[str] = field(default_factory=list)
    acls: list[Acl] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def add(self, acl: Acl, counts: Mapping[str, int]) -> None:
        """Add lexemes of chunks with the same access control list."""
        self.lexemes.extend(counts)
        self.acls.extend([acl] * len(counts))
        self.counts.extend(counts.values())

    def bind(self, connection: psycopg.Connection) -> dict[str, Array]:
        """Return the parameters of a statement that finds their rows."""
        hashes = {acl: _acl_hash(acl) for acl in set(self.acls)}
        return {
            "lexemes": array(connection, "text", self.lexemes),
            "acl_hashes": array(connection, "uuid", [hashes[acl] for acl in self.acls]),
            "counts": array(connection, "int4", self.counts),
        }

    def bind_new(self, connection: psycopg.Connection, ids: Mapping[str, int]) -> dict[str, Array]:
        """Return the parameters of a statement that inserts rows."""
        literals = {acl: array_literal(acl) for acl in set(self.acls)}
        return self.bind(connection) | {
            "acls": array(connection, "text", [literals[acl] for acl in self.acls]),
            "ids": array(connection, "int4", [ids[lexeme] for lexeme in self.lexemes]),
        }


def count_by_acl(analysis: Analysis, acls: Sequence[Acl], languages: Sequence[str]) -> dict[Acl, LexicalCounts]:
    """Count analysed chunks by access control list.

    Args:
        analysis: lexemes of the chunks.
        acls: access control list of each chunk.
        languages: text search configuration of each chunk.
    """
    numbers = {acl: number for number, acl in enumerate(dict.fromkeys(acls))}
    acl_numbers = np.array([numbers[acl] for acl in acls], dtype=np.intp)
    counts_by_acl = {}
    for acl, number in numbers.items():
        selected = acl_numbers == number
        counts = np.bincount(analysis.lexemes[selected[analysis.rows]], minlength=len(analysis.vocabulary))
        present = np.flatnonzero(counts).tolist()
        counts_by_acl[acl] = LexicalCounts(
            chunks=int(selected.sum()),
            length=int(analysis.lengths[selected].sum()),
            lexemes=dict(zip([analysis.vocabulary[at] for at in present], counts[present].tolist(), strict=True)),
            languages=frozenset(languages[at] for at in np.flatnonzero(selected).tolist()),
        )
    return counts_by_acl


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedCounts:
    """Contribution of removed document versions, by access control list."""

    version_ids: list[uuid.UUID]
    counts: Mapping[Acl, LexicalCounts]

    @property
    def chunks(self) -> int:
        """Number of removed chunks."""
        return sum(counts.chunks for counts in self.counts.values())

    @property
    def length(self) -> int:
        """Total length of the removed chunks."""
        return sum(counts.length for counts in self.counts.values())


def count_removed(connection: psycopg.Connection, tenant_id: uuid.UUID, version_ids: list[uuid.UUID]) -> RemovedCounts:
    """Count what document versions contribute to the statistics of their collection."""
    scope = {"tenant_id": tenant_id, "version_ids": version_ids}
    sizes = connection.execute(statement("size_of_documents"), scope).fetchall() if version_ids else ()
    rows = connection.execute(statement("lexemes_of_documents"), scope).fetchall() if version_ids else ()
    lexemes = {tuple(acl): dict(zip(names, counts, strict=True)) for acl, names, counts in rows}
    return RemovedCounts(
        version_ids=version_ids,
        counts={
            tuple(acl): LexicalCounts(chunks=chunks, length=length, lexemes=lexemes.get(tuple(acl), {}))
            for acl, chunks, length in sizes
        },
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionStatistics:
    """The statistics of a locked collection."""

    chunks: int
    length: int
    next_lexeme_id: int
    next_sequence: int
    epoch: int
    """Number of the last change of documents."""
    state: uuid.UUID
    """Identity of the last change."""


def lock_collection(connection: psycopg.Connection, scope: dict[str, Any]) -> CollectionStatistics | None:
    """Lock a collection until the transaction ends.

    The result is None if the collection does not exist.
    """
    return read_lock(send_lock(connection, scope))


def send_lock(connection: psycopg.Connection, scope: dict[str, Any]) -> psycopg.Cursor:
    """Send the statement that locks a collection; `read_lock` waits for it."""
    return connection.execute(statement("lock_collection"), scope)


def read_lock(cursor: psycopg.Cursor) -> CollectionStatistics | None:
    """Read the result of `send_lock`.

    The result is None if the collection does not exist.
    """
    row = cursor.fetchone()
    if row is None:
        return None
    chunks, length, next_lexeme_id, next_sequence, epoch, state = row
    return CollectionStatistics(
        chunks=chunks,
        length=length,
        next_lexeme_id=next_lexeme_id,
        next_sequence=next_sequence,
        epoch=epoch,
        state=state,
    )


def update_statistics(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    statistics: CollectionStatistics,
    added: Mapping[Acl, LexicalCounts],
    removed: RemovedCounts,
    *,
    changed: Collection[uuid.UUID] = (),
) -> dict[str, int]:
    """Apply added and removed counts.

    Returns the id of each added lexeme. It is called before versions are deleted.

    Args:
        connection: connection of the worker role, with the tenant set.
        scope: `tenant_id` and `collection`.
        added: counts of the added chunks.
        removed: counts of the removed versions.
        changed: versions whose documents change in something that is not counted.
    """
    ids, next_id = _update_lexemes(connection, scope, added, removed.counts, statistics.next_lexeme_id)
    chunks = sum(counts.chunks for counts in added.values())
    changes = {
        "chunks": chunks - removed.chunks,
        "length": sum(counts.length for counts in added.values()) - removed.length,
        "next_lexeme_id": next_id,
        "next_sequence": statistics.next_sequence + chunks,
    }
    versions = [*removed.version_ids, *changed]
    state = _record_change(connection, scope, statistics, changes, versions, added=chunks)
    _update_acl_statistics(connection, {**scope, "state": state}, added, removed.counts)
    return ids


_FOLLOWED_VERSIONS = 1_000
"""Versions of a change above which it is not recorded which chunks they have: to load all is then as fast."""
_KEPT_CHANGES = 1_000
"""Changes of a collection that are kept; processes that lag behind by more load all."""
_DELETION_INTERVAL = 100


def _record_change(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    statistics: CollectionStatistics,
    changes: Mapping[str, int],
    version_ids: list[uuid.UUID],
    *,
    added: int = 0,
) -> uuid.UUID:
    """Update the statistics of a collection, and record which chunks change.

    Returns the identity of the change. It is random: a counter would repeat after a restore.
    """
    epoch, state = statistics.epoch + 1, uuid.uuid4()
    connection.execute(statement("update_collection_statistics"), {**scope, **changes, "epoch": epoch, "state": state})
    values = {
        "epoch": epoch,
        "state": state,
        "previous": statistics.state,
        "version_ids": version_ids,
        "first": statistics.next_sequence,
        "added": added,
        "most": _FOLLOWED_VERSIONS,
    }
    connection.execute(statement("insert_collection_change"), {**scope, **values})
    if epoch % _DELETION_INTERVAL == 0:
        connection.execute(statement("delete_collection_changes"), {**scope, "until": epoch - _KEPT_CHANGES})
    return state


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A change of the access control list of documents."""

    before: Acl
    after: Acl


def count_moves(
    connection: psycopg.Connection, tenant_id: uuid.UUID, moves: Mapping[uuid.UUID, Move]
) -> dict[Move, LexicalCounts]:
    """Count the chunks of document versions by move, without languages.

    Args:
        connection: connection of the worker role, with the tenant set.
        moves: move by document version.
    """
    distinct = list(dict.fromkeys(moves.values()))
    numbers = {move: number for number, move in enumerate(distinct)}
    values = {
        "tenant_id": tenant_id,
        "version_ids": array(connection, "uuid", list(moves)),
        "numbers": array(connection, "int4", [numbers[move] for move in moves.values()]),
    }
    cursor = connection.cursor(binary=True)
    lexemes = {
        number: dict(zip(names, counts, strict=True))
        for number, names, counts in cursor.execute(statement("lexemes_of_moves"), values).fetchall()
    }
    return {
        distinct[number]: LexicalCounts(chunks=chunks, length=length, lexemes=lexemes.get(number, {}))
        for number, chunks, length in cursor.execute(statement("size_of_moves"), values).fetchall()
    }


def move_counts(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    statistics: CollectionStatistics,
    counts: Mapping[Move, LexicalCounts],
    version_ids: Collection[uuid.UUID],
) -> None:
    """Move the counts of chunks to other access control lists.

    The chunks and their lexemes keep their ids. A list gets all languages of those that its chunks had before: the
    languages of single chunks are not stored.

    Args:
        connection: connection of the worker role, with the tenant set.
        scope: `tenant_id` and `collection`.
        counts: what `count_moves` returned.
        version_ids: the versions whose chunks move.
    """
    lists = _load_lists(connection, scope, counts)
    whole_moves = _find_whole_moves(lists, counts)
    for move in whole_moves:
        _rename_acl(connection, scope, move, counts[move])
    _move_lexemes(connection, scope, {move: count for move, count in counts.items() if move not in whole_moves})
    added: dict[Acl, LexicalCounts] = {}
    removed: dict[Acl, LexicalCounts] = {}
    for move, count in counts.items():
        added[move.after] = _sum_sizes(added.get(move.after), count, lists[move.before].languages)
        removed[move.before] = _sum_sizes(removed.get(move.before), count, ())
    unchanged = {
        "chunks": 0,
        "length": 0,
        "next_lexeme_id": statistics.next_lexeme_id,
        "next_sequence": statistics.next_sequence,
    }
    state = _record_change(connection, scope, statistics, unchanged, list(version_ids))
    _update_acl_statistics(connection, {**scope, "state": state}, added, removed)


def _sum_sizes(total: LexicalCounts | None, count: LexicalCounts, languages: Collection[str]) -> LexicalCounts:
    before = total or LexicalCounts()
    return LexicalCounts(
        chunks=before.chunks + count.chunks,
        length=before.length + count.length,
        languages=before.languages.union(languages),
    )


WHOLE_MOVE_CHUNKS = 20
"""Chunks from which on a statement of its own for a whole list pays."""


def _load_lists(
    connection: psycopg.Connection, scope: dict[str, Any], moves: Collection[Move]
) -> dict[Acl, LexicalCounts]:
    """Return chunks and languages of the access control lists of moves.

    Without lists that have no chunks.
    """
    acls = {acl for move in moves for acl in (move.before, move.after)}
    values = {**scope, "acl_hashes": [_acl_hash(acl) for acl in acls]}
    return {
        tuple(acl): LexicalCounts(chunks=chunks, languages=frozenset(languages))
        for acl, chunks, languages in connection.execute(statement("acl_sizes"), values).fetchall()
    }


def _find_whole_moves(lists: Mapping[Acl, LexicalCounts], counts: Mapping[Move, LexicalCounts]) -> set[Move]:
    """Return the moves of all chunks of one list.

    The other list has no chunks, and no other move shares it.
    """
    targets = Counter(move.after for move in counts)
    return {
        move
        for move, count in counts.items()
        if count.chunks >= WHOLE_MOVE_CHUNKS
        and lists[move.before].chunks == count.chunks
        and (move.after not in lists or lists[move.after].chunks == 0)
        and targets[move.after] == 1
    }


def _rename_acl(connection: psycopg.Connection, scope: dict[str, Any], move: Move, count: LexicalCounts) -> None:
    values = {
        "lexemes": array(connection, "text", list(count.lexemes)),
        "before_hash": _acl_hash(move.before),
        "after_hash": _acl_hash(move.after),
        "after": list(move.after),
    }
    connection.execute(statement("rename_lexemes_acl"), {**scope, **values})


def _move_lexemes(connection: psycopg.Connection, scope: dict[str, Any], counts: Mapping[Move, LexicalCounts]) -> None:
    changes: Counter[tuple[str, Acl]] = Counter()
    for move, count in counts.items():
        changes.update({(lexeme, move.after): chunks for lexeme, chunks in count.lexemes.items()})
        changes.subtract({(lexeme, move.before): chunks for lexeme, chunks in count.lexemes.items()})
    # The changes of a lexeme add up to 0: where one list gets more chunks, another has fewer, and has the id.
    sorted_changes = sorted(changes.items())  # neighbours in the index
    fewer = [(pair, change) for pair, change in sorted_changes if change < 0]
    more = [(pair, change) for pair, change in sorted_changes if change > 0]
    ids: dict[str, int] = {}
    for name in ("delete_lexemes", "update_lexemes") if fewer else ():
        columns = _to_columns(fewer)
        rows = connection.cursor(binary=True).execute(statement(name), {**scope, **columns.bind(connection)}).fetchall()
        ids |= {columns.lexemes[number - 1]: lexeme_id for number, lexeme_id in rows}
        positions = {number - 1 for number, _ in rows}
        fewer = [change for at, change in enumerate(fewer) if at not in positions]
        if not fewer:
            break
    if more:
        values = _to_columns(more).bind_new(connection, ids)
        connection.execute(statement("upsert_lexemes"), {**scope, **values})


def _to_columns(changes: Sequence[tuple[tuple[str, Acl], int]]) -> _LexemeColumns:
    return _LexemeColumns(
        lexemes=[lexeme for (lexeme, _), _ in changes],
        acls=[acl for (_, acl), _ in changes],
        counts=[change for _, change in changes],
    )


def _update_acl_statistics(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    added: Mapping[Acl, LexicalCounts],
    removed: Mapping[Acl, LexicalCounts],
) -> None:
    none = LexicalCounts()
    changes = [(acl, added.get(acl, none), removed.get(acl, none)) for acl in {**added, **removed}]
    values = {
        "acl_hashes": [_acl_hash(acl) for acl, _, _ in changes],
        "acls": [array_literal(acl) for acl, _, _ in changes],
        "chunks": [new.chunks - old.chunks for _, new, old in changes],
        "added": [new.chunks for _, new, _ in changes],
        "lengths": [new.length - old.length for _, new, old in changes],
        "languages": [array_literal(sorted(new.languages)) for _, new, _ in changes],
    }
    connection.execute(statement("update_acl_statistics"), {**scope, **values})
    connection.execute(statement("update_acl_languages"), {**scope, **values})
    if removed:
        connection.execute(statement("delete_empty_acl_statistics"), {**scope, **values})


def _update_lexemes(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    added: Mapping[Acl, LexicalCounts],
    removed: Mapping[Acl, LexicalCounts],
    next_id: int,
) -> tuple[dict[str, int], int]:
    """Update the document frequencies.

    Return the ids of the added lexemes and the next free id.
    """
    changes = _LexemeColumns()
    for acl, counts in _subtract(added, removed).items():
        changes.add(acl, counts)
    values = {**scope, **changes.bind(connection)}
    if removed:
        connection.execute(statement("delete_lexemes"), values)
    rows = connection.cursor(binary=True).execute(statement("update_lexemes"), values).fetchall()
    ids = {changes.lexemes[number - 1]: lexeme_id for number, lexeme_id in rows}
    missing = np.ones(len(changes.lexemes), dtype=bool)
    missing[[number - 1 for number, _ in rows]] = False
    return _insert_lexemes(connection, scope, _select_added(changes, missing, added), ids, next_id)


def _subtract(
    added: Mapping[Acl, LexicalCounts], removed: Mapping[Acl, LexicalCounts]
) -> Mapping[Acl, Mapping[str, int]]:
    """Return the change of each document frequency."""
    changes = {acl: counts.lexemes for acl, counts in added.items()}
    for acl, counts in removed.items():
        lexemes = dict(changes.get(acl, ()))
        for lexeme, count in counts.lexemes.items():
            lexemes[lexeme] = lexemes.get(lexeme, 0) - count
        changes[acl] = lexemes
    return changes


def _select_added(
    changes: _LexemeColumns, missing: NDArray[np.bool_], added: Mapping[Acl, LexicalCounts]
) -> _LexemeColumns:
    """Return the added lexemes among those that no row had."""
    none = LexicalCounts()
    pairs = [(changes.lexemes[at], changes.acls[at]) for at in np.flatnonzero(missing).tolist()]
    pairs = [(lexeme, acl) for lexeme, acl in pairs if lexeme in added.get(acl, none).lexemes]
    return _LexemeColumns(
        lexemes=[lexeme for lexeme, _ in pairs],
        acls=[acl for _, acl in pairs],
        counts=[added[acl].lexemes[lexeme] for lexeme, acl in pairs],
    )


def _insert_lexemes(
    connection: psycopg.Connection, scope: dict[str, Any], new: _LexemeColumns, ids: dict[str, int], next_id: int
) -> tuple[dict[str, int], int]:
    """Insert lexemes that are new for their access control list.

    Return all ids and the next free id.
    """
    unknown = [lexeme for lexeme in dict.fromkeys(new.lexemes) if lexeme not in ids]
    if unknown:
        values = {**scope, "lexemes": array(connection, "text", unknown)}
        ids = ids | dict(connection.cursor(binary=True).execute(statement("lexeme_ids"), values).fetchall())
        unknown = [lexeme for lexeme in unknown if lexeme not in ids]
        ids |= zip(unknown, range(next_id, next_id + len(unknown)), strict=True)
    if new.lexemes:
        values = {**scope, **new.bind_new(connection, ids)}
        connection.execute(statement("insert_lexemes"), values)
    return ids, next_id + len(unknown)


def compute_saturated_terms(analysis: Analysis, lexeme_ids: Mapping[str, int], pivot: float) -> list[bytes]:
    """Return each chunk's saturated term frequencies as binary `sparsevec`.

    The indices are lexeme ids.

    Args:
        analysis: lexemes of the chunks.
        pivot: average chunk length of the collection, for the length normalisation of BM25.
    """
    ids = np.array([lexeme_ids[lexeme] for lexeme in analysis.vocabulary], dtype=np.intp)[analysis.lexemes]
    order = np.argsort(analysis.rows * (int(ids.max(initial=0)) + 1) + ids)  # by chunk, then by id
    norms = bm25.norms(analysis.lengths.astype(np.float64), pivot, bm25.STORED_B)[analysis.rows]
    weights = bm25.contributions(analysis.frequencies.astype(np.float64), norms, 1.0)
    entries = SparseEntries(rows=analysis.rows[order], lexeme_ids=ids[order], values=weights[order].astype(np.float32))
    return sparse_vectors(entries, len(analysis.tsvectors), bm25.DIMENSIONS)
