"""The statistics kept of a corpus: right after any changes, by any number of writers, and as PostgreSQL counts."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos_rag import Engine, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.analysis import TextAnalyser, parse_tsvectors
from kosmos_rag.storage.binary import register_arrays
from kosmos_rag.storage.tenants import tenant

TABLES = ("documents", "document_versions", "chunks", "embeddings", "lexemes")


def _text(source: str, text: str, **options: object) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode(), **options)  # type: ignore[arg-type]


def _rows(database: DatabaseSettings, name: str, table: str) -> int:
    with psycopg.connect(database.admin_url or "") as connection:
        query = f"SELECT count(*) FROM kosmos.{table} WHERE tenant_id = %s".encode()
        row = connection.execute(query, [tenant(name).id]).fetchone()
    assert row is not None
    return int(row[0])


def _assert_statistics(database: DatabaseSettings, name: str) -> None:
    """The kept statistics are what counting the chunks gives."""
    with psycopg.connect(database.admin_url or "") as connection:
        stored = connection.execute(
            "SELECT lexeme, chunks FROM kosmos.lexemes WHERE tenant_id = %s", (tenant(name).id,)
        ).fetchall()
        expected = connection.execute(
            "SELECT u.lexeme, count(*) FROM kosmos.chunks c, unnest(c.tsv) u WHERE c.tenant_id = %s GROUP BY 1",
            (tenant(name).id,),
        ).fetchall()
        assert Counter(dict(stored)) == Counter(dict(expected))
        size = connection.execute(
            "SELECT chunks, length FROM kosmos.collection_statistics WHERE tenant_id = %s", (tenant(name).id,)
        ).fetchone()
        assert (
            size
            == connection.execute(
                "SELECT count(*), coalesce(sum(length), 0) FROM kosmos.chunks WHERE tenant_id = %s", (tenant(name).id,)
            ).fetchone()
        )


def test_statistics__are_right_after_any_sequence_of_changes(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    dice = random.Random(7)
    words = [f"word{number}" for number in range(40)]
    for _ in range(25):
        if dice.random() < 0.3:
            scope.delete([f"doc{dice.randrange(12)}" for _ in range(3)])
        else:
            scope.ingest(
                _text(f"doc{dice.randrange(12)}", "\n\n".join(" ".join(dice.choices(words, k=30)) for _ in range(5)))
                for _ in range(4)
            )
        _assert_statistics(database, tenant_name)


def test_statistics__are_right_under_concurrent_writers(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    failures: list[BaseException] = []

    def write(seed: int) -> None:
        dice = random.Random(seed)
        scope = engine.tenant(tenant_name)
        try:
            for _ in range(12):
                names = [f"doc{dice.randrange(6)}" for _ in range(3)]
                if dice.random() < 0.3:
                    scope.delete(names)
                else:
                    scope.ingest(_text(name, " ".join(dice.choices("abcdefghij", k=20))) for name in set(names))
        except Exception as error:  # noqa: BLE001 — handed to the main thread
            failures.append(error)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    _assert_statistics(database, tenant_name)
    assert _rows(database, tenant_name, "documents") == _rows(database, tenant_name, "document_versions")


def test_ingest__the_same_source_twice_in_one_call_is_one_document(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    scope = engine.tenant(tenant_name)
    report = scope.ingest([_text("a", "first words"), _text("a", "second words"), _text("a", "second words")])
    assert (report.new, report.changed, report.unchanged) == (1, 1, 1)
    assert [hit.text for hit in scope.search("words").hits] == ["second words"]
    _assert_statistics(database, tenant_name)


def test_document__from_many_threads_is_one_document(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    threads = [
        threading.Thread(target=lambda: engine.tenant(tenant_name).ingest([_text("a", "the same words")]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [_rows(database, tenant_name, table) for table in TABLES[:4]] == [1, 1, 1, 1]
    _assert_statistics(database, tenant_name)


def test_delete__leaves_no_row(engine: Engine, database: DatabaseSettings, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.ingest([_text("a", "alpha beta"), _text("b", "beta gamma")])
    assert scope.delete(["a", "b", "never there"]) == 2
    assert [_rows(database, tenant_name, table) for table in TABLES] == [0, 0, 0, 0, 0]
    assert scope.delete("a") == 0
    assert engine.tenant(f"{tenant_name}-nobody").delete("a") == 0


@given(
    texts=st.lists(
        st.text(alphabet=st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=100), max_size=4
    )
)
@example(texts=["it's o''clock at C:\\\\temp\\x 'quoted' http://a.b/c?d=e f-g 3.14 a@b.cd", "", "x " * 300 + "y x z"])
def test_analysis__is_what_postgres_says(texts: list[str], shared_connection: psycopg.Connection) -> None:
    query = (
        "SELECT t, ARRAY(SELECT u.lexeme FROM unnest(t) u), ARRAY(SELECT cardinality(u.positions) FROM unnest(t) u) "
        "FROM unnest(%s::text[]) WITH ORDINALITY AS given (text, n), to_tsvector('english', text) t ORDER BY n"
    )
    rows = shared_connection.cursor(binary=True).execute(query, (texts,)).fetchall()
    analysis = parse_tsvectors([tsvector for tsvector, _, _ in rows])
    payloads: list[dict[str, int]] = [{} for _ in rows]
    for row, lexeme, frequency in zip(analysis.rows, analysis.lexemes, analysis.frequencies, strict=True):
        payloads[row][analysis.vocabulary[lexeme]] = frequency
    assert payloads == [dict(zip(lexemes, counts, strict=True)) for _, lexemes, counts in rows]
    assert analysis.lengths.tolist() == [sum(counts) for _, _, counts in rows]
    assert analysis.vocabulary == sorted({lexeme for _, lexemes, _ in rows for lexeme in lexemes})


@pytest.fixture(scope="module")
def shared_connection(server: Any) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.admin, autocommit=True) as connection:
        register_arrays(connection)
        yield connection


@pytest.mark.parametrize("count", [0, 1, 150, 400])
def test_analysis__of_texts_in_parts_is_that_of_each_text(count: int, shared_connection: psycopg.Connection) -> None:
    """Each part has words that other parts lack, and some that all have."""
    texts = [f"Report {number}: the houses of Köln, number{number % 7} und Häuser" for number in range(count)]
    languages = ["english" if number % 3 else "german" for number in range(count)]
    with shared_connection.pipeline():
        analysis = TextAnalyser(shared_connection, texts, languages).read()
    one_by_one = []
    for text, language in zip(texts, languages, strict=True):
        with shared_connection.pipeline():
            one_by_one += TextAnalyser(shared_connection, [text], [language]).read().tsvectors
    assert analysis.tsvectors == one_by_one
    assert parse_tsvectors(one_by_one).vocabulary == analysis.vocabulary
    frequencies: list[Counter[str]] = [Counter() for _ in texts]
    for row, lexeme, frequency in zip(analysis.rows, analysis.lexemes, analysis.frequencies, strict=True):
        frequencies[row][analysis.vocabulary[lexeme]] = int(frequency)
    for tsvector, counts in zip(one_by_one, frequencies, strict=True):
        alone = parse_tsvectors([tsvector])
        assert counts == dict(
            zip([alone.vocabulary[at] for at in alone.lexemes], alone.frequencies.tolist(), strict=True)
        )
    assert analysis.lengths.tolist() == [sum(counts.values()) for counts in frequencies]
