"""The rows of a query as documents, on SQLite; tests/integration/ingestion/test_sources.py has PostgreSQL."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.errors import GONE, SourceError
from kosmos_rag.ingestion.sources.listing import Source
from kosmos_rag.ingestion.sources.sql_connection import connect, translate_errors

Run = Callable[[str], None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs statements in the database that KB_URL names."""
    monkeypatch.setenv("KB_URL", f"sqlite:///{tmp_path}/kb.sqlite")

    def run(statements: str) -> None:
        with closing(sqlite3.connect(tmp_path / "kb.sqlite")) as connection:
            connection.executescript(statements)

    return run


def _spec(**spec: Any) -> dict[str, Any]:
    return {"kind": "sql", "name": "tickets", "url_env": "KB_URL", "query": "SELECT * FROM t", **spec}


def _texts(source: Source) -> dict[str, str]:
    return {entry.source: source.load(entry).data.decode() for entry in source.listing()}


def test_rows__are_documents(run: Run, opened: Any) -> None:
    run(
        "CREATE TABLE t (nr integer, body, subject, year, score, note);"
        "INSERT INTO t VALUES (1, 'first', 'A', 2026, 1.5, NULL), (2, 'zweite ä', NULL, 2025, NULL, 'n')"
    )
    source = opened(
        **_spec(
            id_column="nr",
            text_column="body",
            title_column="subject",
            metadata_columns=["year", "score", "note"],
            metadata={"team": "x"},
            acl=["hr"],
        )
    )
    first, second = (source.load(entry) for entry in source.listing())
    assert (first.source, first.data, first.title) == ("sql://tickets/1", b"first", "A")
    assert first.metadata == {"team": "x", "year": 2026, "score": 1.5}
    assert (second.source, second.title, second.acl) == ("sql://tickets/2", None, ("hr",))
    assert second.metadata == {"team": "x", "year": 2025, "note": "n"}


def test_rows__of_any_query(run: Run, opened: Any) -> None:
    run("CREATE TABLE t (id text, text text, at text); INSERT INTO t VALUES ('a:b', 'x', '10:30'), ('c%', 'y', '');")
    query = "SELECT id, text || ' :colon %s' AS \"Text Col\" FROM t WHERE at != ':no' ORDER BY id DESC ;\n"
    source = opened(**_spec(query=query, text_column="Text Col"))
    assert _texts(source) == {"sql://tickets/c%": "y :colon %s", "sql://tickets/a:b": "x :colon %s"}


def test_rows__that_cannot_be_told_apart_are_failures(run: Run, opened: Any) -> None:
    run(
        "CREATE TABLE t (id, text);"
        "INSERT INTO t VALUES (1, 'a'), (NULL, 'b'), (1.5, 'c'), (x'00', 'd'), ('', 'e');"
        "INSERT INTO t VALUES (1, 'f'), ('1', 'g'), (2, 'h')"
    )
    source = opened(**_spec())
    listing = source.listing()
    first, second = listing
    assert (first.source, second.source) == ("sql://tickets/1", "sql://tickets/2")
    assert [failure.code for failure in listing.failures] == ["unreadable"] * 4 + ["duplicate"] * 2
    assert listing.failures[0].source == "sql://tickets/, row 2"
    assert not listing.complete
    with pytest.raises(SourceError, match="make id unique"):
        source.load(first)


def test_text__null_or_no_text_fails_alone_when_it_is_loaded(run: Run, opened: Any) -> None:
    run("CREATE TABLE t (id, text); INSERT INTO t VALUES (1, NULL), (2, 5), (3, 'fine'), (4, x'255044462d')")
    source = opened(**_spec())
    listing = source.listing()
    entries = {entry.source[-1]: entry for entry in listing}
    assert listing.complete, "their identity is known, so nothing else is taken for gone"
    for name, message in (("1", "has no text"), ("2", "text is 5")):
        with pytest.raises(SourceError, match=message) as caught:
            source.load(entries[name])
        assert caught.value.code == "unreadable"
    assert source.load(entries["3"]).data == b"fine"
    assert source.load(entries["4"]).data == b"%PDF-", "a document in its own format may lie in a binary column"


def test_load__of_a_row_that_is_gone_or_too_large(run: Run, opened: Any) -> None:
    run("CREATE TABLE t (id, text); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    source = opened(**_spec())
    first, second = source.listing()
    run(f"DELETE FROM t WHERE id = 1; UPDATE t SET text = '{'x' * 1_100_000}'")
    codes = []
    for entry in (first, second):
        with pytest.raises(SourceError) as caught:
            source.load(entry)
        codes.append(caught.value.code)
    assert codes == [GONE, "too_large"]


def test_load__takes_an_id_as_a_value_and_not_as_sql(run: Run, opened: Any) -> None:
    evil = "'; DROP TABLE t; --"
    run(f"CREATE TABLE t (id, text); INSERT INTO t VALUES ('{evil.replace(chr(39), chr(39) * 2)}', 'harmless')")
    source = opened(**_spec())
    [entry] = source.listing()
    assert json.loads(json.dumps(dict(entry.locator))) == {"id": evil}
    assert source.load(entry).data == b"harmless"
    assert len(list(source.listing())) == 1


def test_mark__changes_with_the_row_and_with_who_may_read_it(run: Run, opened: Any) -> None:
    run("CREATE TABLE t (id, text, seen); INSERT INTO t VALUES (1, 'x', 0)")

    def etag(**spec: Any) -> str | None:
        [entry] = opened(**_spec(**spec)).listing()
        return str(entry.etag)

    first = etag()
    run("UPDATE t SET seen = 1")
    assert etag() == first
    assert etag(acl=["hr"]) != first
    run("UPDATE t SET text = 'y'")
    assert etag() != first


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT * FROM missing", "unavailable"),  # SQLite reports what is wrong with a statement as operational
        ("SELEC", "unavailable"),
        ("DELETE FROM t RETURNING *", "unavailable"),
        ("SELECT id FROM t", "unavailable"),
        ("SELECT 1; DROP TABLE t", "unavailable"),
    ],
)
def test_query__that_fails_is_a_failure_and_changes_nothing(query: str, code: str, run: Run, opened: Any) -> None:
    run("CREATE TABLE t (id, text); INSERT INTO t VALUES (1, 'x')")
    listing = opened(**_spec(query=query)).listing()
    assert list(listing) == []
    assert [(failure.source, failure.code) for failure in listing.failures] == [("sql://tickets/", code)]
    assert listing.failures[0].message.isprintable()
    assert len(list(opened(**_spec()).listing())) == 1


def test_connection__may_not_write(run: Run, opened: Any) -> None:
    run("CREATE TABLE t (id, text)")
    with (
        connect(opened(**_spec())._engine, "URL", "x") as connection,
        pytest.raises(Exception, match="readonly"),
    ):
        connection.exec_driver_sql("INSERT INTO t VALUES (1, 'x')")


def test_covers__the_documents_of_this_source(run: Run, opened: Any) -> None:
    run("CREATE TABLE t (id, text)")
    listing = opened(**_spec()).listing()
    assert listing.covers("sql://tickets/9")
    assert not listing.covers("sql://tickets2/9")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("('28000', \"[28000] [Microsoft][ODBC Driver 18]Login failed for user 'kb'. (18456)\")", "no_permission"),
        ("ORA-01017: invalid credential or not authorized; logon denied", "no_permission"),
        ("ORA-28001: the account's password has expired", "no_permission"),
        ("ORA-12541: Cannot connect. No listener at host", "unavailable"),
        ("('08001', '[08001] Login timeout expired (0)')", "unavailable"),
    ],
)  # fmt: skip
def test_account__that_other_databases_refuse_is_told(message: str, code: str) -> None:
    from sqlalchemy.exc import OperationalError

    with pytest.raises(SourceError) as caught, translate_errors("KB_URL", "tickets"):
        raise OperationalError(None, None, Exception(message))
    assert caught.value.code == code
