"""Make blocks that follow the changes of their collections."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.retrieval.blocks.block import Block, Change, Layer
from kosmos_rag.retrieval.blocks.building import Chunks, build_part, merge_small
from kosmos_rag.retrieval.blocks.cache import StateKey, state_key
from kosmos_rag.retrieval.blocks.loading import collect_chunks, count_lexemes, unpack_vectors
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.storage.binary import array
from kosmos_rag.storage.sql import statement

MAX_CHUNKS = 2_000
"""Changed chunks above which a block is not followed: to load all is about as fast."""


def follow(connection: psycopg.Connection, query: RetrieverQuery, block: Block) -> tuple[StateKey, Block] | None:
    """Return a block that has what a reader sees now, with its state.

    A change names each chunk whose row, document or readers it has changed. These chunks are removed from the block,
    and added as far as the reader sees them. The result is None if the changes since are not known to be complete, or
    too many.

    Args:
        connection: In a transaction of the reader.
        query: A search of the reader, as the block was loaded for.
        block: What the reader saw at the state of his last search.

    Raises DatabaseError.
    """
    scope = query.scope
    epochs = {name: change.epoch for name, change in block.changes.items()}
    values = {**scope, "collections": list(epochs), "epochs": list(epochs.values())}
    # All are sent before the first result is fetched: the pipeline makes them one round trip.
    space = connection.execute(statement("live_space_id"), scope)
    states = connection.execute(statement("last_changes"), scope)
    latest = connection.execute(statement("collection_states"), scope)
    recorded = connection.execute(statement("collection_changes"), values)
    if space.fetchall() != [(block.space_id,)]:
        return None
    changes = {name: Change(epoch=epoch, state=state) for name, epoch, state in latest.fetchall()}
    changed = _collect(block.changes, changes, recorded.fetchall())
    if changed is None:
        return None
    added = {
        name: _read_chunks(connection, query, name, sequences, block.space_id) for name, sequences in changed.items()
    }
    layers = [layer.without(changed) for layer in block.layers]
    if present := {name: chunks for name, chunks in added.items() if len(chunks.sequences)}:
        layers.append(Layer(part=build_part(present)))
    state = state_key(query, block.space_id, dict(states.fetchall()))
    return state, Block(space_id=block.space_id, layers=merge_small(layers), changes=changes, lineage=block.lineage)


def _collect(
    followed: Mapping[str, Change], latest: Mapping[str, Change], recorded: Sequence[tuple[Any, ...]]
) -> dict[str, NDArray[np.int32]] | None:
    """Return the sequence numbers of all chunks that have changed, by collection.

    The result is None unless the recorded changes lead from what was followed to the latest, one after the other: the
    database may have gone back in time, or the rows may have been deleted.
    """
    if followed.keys() != latest.keys():
        return None
    states = {name: change.state for name, change in followed.items()}
    ranges: dict[str, list[tuple[int, int]]] = {}
    for name, state, previous, sequences in recorded:
        if previous != states[name] or sequences is None:
            return None
        states[name] = state
        ranges.setdefault(name, []).extend((each.lower, each.upper) for each in sequences)
    if states != {name: change.state for name, change in latest.items()}:
        return None
    if sum(upper - lower for of_name in ranges.values() for lower, upper in of_name) > MAX_CHUNKS:
        return None
    return {
        name: np.unique(np.concatenate([np.arange(lower, upper, dtype=np.int32) for lower, upper in of_name]))
        for name, of_name in ranges.items()
        if of_name
    }


def _read_chunks(
    connection: psycopg.Connection,
    query: RetrieverQuery,
    collection: str,
    sequences: NDArray[np.int32],
    space_id: UUID,
) -> Chunks:
    """Read those chunks that the reader sees."""
    scope = {**query.scope, "collection": collection}
    values = {**scope, "sequences": array(connection, "int4", sequences), "space_id": space_id}
    rows = connection.cursor(binary=True).execute(statement("changed_chunks"), values).fetchall()
    rows.sort(key=itemgetter(0))
    with_vector = [(row[1].int, row[3]) for row in rows if row[3] is not None]
    vectors: dict[int, NDArray[np.float16]] = {}
    if with_vector and query.vector is not None:
        unpacked = unpack_vectors([packed for _, packed in with_vector])
        vectors = dict(zip([number for number, _ in with_vector], unpacked, strict=True))
    lengths, entries = np.zeros(len(rows), dtype=np.int32), []
    if query.lexical and rows:
        analysed_lengths, of_rows = count_lexemes(connection, scope, [row[2] for row in rows], np.arange(len(rows)))
        lengths, entries = analysed_lengths.astype(np.int32), [of_rows]
    return collect_chunks([(row[0], row[1]) for row in rows], vectors, query.vector, (lengths, entries))
