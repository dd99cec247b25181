"""Binary arrays: PostgreSQL reads them as what they were made of."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgvector.psycopg import register_vector
from psycopg import sql

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.binary import SparseEntries, array, register_arrays, sparse_vectors

TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)


@pytest.fixture(scope="module")
def connection(shared_database: DatabaseSettings) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shared_database.admin_url or "", autocommit=True) as opened:
        register_vector(opened)
        register_arrays(opened)
        yield opened


def _read(connection: psycopg.Connection, kind: str, values: Any) -> list[Any]:
    query = sql.SQL("SELECT u::text FROM unnest(%b::{}[]) WITH ORDINALITY AS u (u, n) ORDER BY n").format(
        sql.Identifier(kind)
    )
    return [text for (text,) in connection.execute(query, (array(connection, kind, values),)).fetchall()]


@given(values=st.lists(st.uuids(), max_size=5))
def test_array__of_uuids(values: list[UUID], connection: psycopg.Connection) -> None:
    assert _read(connection, "uuid", values) == [str(value) for value in values]


@given(values=st.lists(st.uuids(), max_size=5))
def test_array__of_uuids_in_binary_form(values: list[UUID], connection: psycopg.Connection) -> None:
    assert _read(connection, "uuid", [value.bytes for value in values]) == [str(value) for value in values]


@given(values=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5))
def test_array__of_integers(values: list[int], connection: psycopg.Connection) -> None:
    assert _read(connection, "int4", values) == [str(value) for value in values]


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_array__of_long_integers(values: list[int], connection: psycopg.Connection) -> None:
    assert _read(connection, "int8", values) == [str(value) for value in values]


@given(values=st.lists(TEXTS, max_size=5))
def test_array__of_texts(values: list[str], connection: psycopg.Connection) -> None:
    assert _read(connection, "text", values) == values


@pytest.mark.parametrize("texts", [["a\0b"], ["", "a\0", "b"]])
def test_array__a_text_with_a_nul_is_refused_by_the_server(texts: list[str], connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.DataError, match="0x00"):
        _read(connection, "text", texts)


@given(values=st.lists(st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | st.lists(TEXTS)), max_size=5))
def test_array__of_json(values: list[dict[str, Any]], connection: psycopg.Connection) -> None:
    assert [json.loads(text) for text in _read(connection, "jsonb", values)] == values


@given(values=st.lists(st.binary(max_size=20), max_size=5))
def test_array__of_bytes(values: list[bytes], connection: psycopg.Connection) -> None:
    assert _read(connection, "bytea", values) == ["\\x" + value.hex() for value in values]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_array__of_vectors_in_half_precision(count: int, connection: psycopg.Connection) -> None:
    vectors = np.random.default_rng(0).standard_normal((count, 7), dtype=np.float32)
    read = [np.array(text.strip("[]").split(","), dtype=np.float16) for text in _read(connection, "halfvec", vectors)]
    assert np.array_equal(np.array(read).reshape(count, 7), vectors.astype(np.float16))
    assert _read(connection, "halfvec", list(vectors)) == _read(connection, "halfvec", vectors)


@pytest.mark.parametrize("texts", [[], ["the churn of churn", "", "it's C:\\temp 'quoted' naïve"]])
def test_array__of_tsvectors(texts: list[str], connection: psycopg.Connection) -> None:
    query = "SELECT to_tsvector('english', t), to_tsvector('english', t)::text FROM unnest(%s::text[]) t"
    rows = connection.cursor(binary=True).execute(query, (texts,)).fetchall()
    assert _read(connection, "tsvector", [binary for binary, _ in rows]) == [text for _, text in rows]


def test_array__of_sparse_vectors(connection: psycopg.Connection) -> None:
    weights = SparseEntries(
        rows=np.array([1, 1, 3]),
        lexeme_ids=np.array([1, 7, 9]),
        values=np.array([0.5, 2.25, 1.75], dtype=np.float32),
    )
    vectors = sparse_vectors(weights, rows=5, dimensions=10)
    expected = ["{}/10", "{1:0.5,7:2.25}/10", "{}/10", "{9:1.75}/10", "{}/10"]
    assert _read(connection, "sparsevec", vectors) == expected
