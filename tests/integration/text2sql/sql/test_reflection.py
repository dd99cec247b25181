"""Live databases as a source."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from kosmos_rag.core.errors import ConfigError, DatabaseUnavailable, RequestError, StatementFailed
from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.catalog.model import ForeignKey
from kosmos_rag.text2sql.catalog.sources import SampleRules, from_database

Shop = tuple[str, str]


def test_postgresql__gives_tables_views_comments_keys_and_enums(shop: Shop) -> None:
    schema = from_database(shop[1], name="shop")
    assert (schema.name, schema.dialect) == ("shop", "postgresql")
    assert {table.full_name for table in schema.tables} == {"teams", "seats", "games", "Order 🙂", "open_games"}
    teams, games = schema.table("teams"), schema.table("games")
    assert teams is not None
    assert games is not None
    name, mood = teams.column("name"), teams.column("mood")
    assert name is not None
    assert mood is not None
    assert (teams.comment, name.comment, name.nullable) == ("Clubs that play", "What the club is called", False)
    assert mood.enum == ("glad", "sad")
    assert teams.unique == (("name",),)
    assert set(games.foreign_keys) == {
        ForeignKey(columns=("home",), table="teams", target=("id",)),
        ForeignKey(columns=("away",), table="teams", target=("id",)),
        ForeignKey(columns=("replay_of",), table="games", target=("id",)),
        ForeignKey(columns=("hall", "place"), table="seats", target=("hall", "place")),
    }
    state = games.column("state")
    assert state is not None
    assert (state.type, state.enum) == ("VARCHAR(9)", ("open", "over"))
    assert all(not column.samples for table in schema.tables for column in table.columns)
    assert schema == from_database(shop[1], name="shop")


def test_postgresql__in_another_namespace(shop: Shop) -> None:
    schema = from_database(shop[1], schemas=(None, "Back Office"))
    (plan,) = JoinGraph(schema).plans(["Back Office.pay", "teams"])
    assert plan.paths[0].joins[0].hint == "Back Office.pay.team_id -> teams.id"
    with pytest.raises(RequestError, match="no namespace nope; there are Back Office"):
        from_database(shop[1], schemas=("nope",))


def test_samples__are_read_only_where_asked_for_and_never_of_private_columns(shop: Shop) -> None:
    schema = from_database(shop[1], samples=SampleRules(max_values=2, excluded=("^teams[.]name$",)))
    samples = {
        f"{table.full_name}.{column.name}": column.samples
        for table in schema.tables
        for column in table.columns
        if column.samples
    }
    # `name` is excluded, `password` private, `se"lect` holds addresses, states and moods are known anyway.
    assert samples == {"Order 🙂.kind": ("kind 0", "kind 1")}
    only = from_database(shop[1], samples=SampleRules(tables=("teams",)))
    assert {table.full_name for table in only.tables for column in table.columns if column.samples} == {"teams"}
    database = from_database(shop[1], samples=SampleRules(tables=("teams.name", "teams.password")))
    read = {
        f"{schema_table.full_name}.{column.name}": column.samples
        for schema_table in database.tables
        for column in schema_table.columns
    }
    assert {name: len(values) for name, values in read.items() if values} == {"teams.name": 50}


def test_samples__of_a_table_that_is_not_there_are_named(shop: Shop) -> None:
    with pytest.raises(RequestError, match="there is no table team;"):
        from_database(shop[1], samples=SampleRules(tables=("team",)))


def test_sample_rules__have_bounds() -> None:
    for rules in ({"max_values": 0}, {"max_values": 21}, {"max_chars": 0}, {"excluded": ("(",)}):
        with pytest.raises(RequestError, match="sample values"):
            SampleRules(**rules)


def test_sqlite__gives_composite_and_self_referencing_keys_and_2000_columns(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    columns = ", ".join(f"c{number} integer" for number in range(1998))
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            'CREATE TABLE "order" (a integer, b text, "qu""ote 🙂" text, PRIMARY KEY (a, b));'
            "CREATE TABLE line (id integer PRIMARY KEY, a, b, up REFERENCES line,"
            ' FOREIGN KEY (a, b) REFERENCES "order" (a, b), lost REFERENCES nowhere (id));'.replace(
                ", lost REFERENCES nowhere (id)", ""
            )
            + f"CREATE TABLE wide (id integer PRIMARY KEY, order_a integer, {columns});"
        )
    schema = from_database(f"sqlite:///{path}")
    assert schema.name == "shop"
    line, wide, order = schema.table("line"), schema.table("wide"), schema.table("order")
    assert line is not None
    assert wide is not None
    assert order is not None
    assert set(line.foreign_keys) == {
        ForeignKey(columns=("a", "b"), table="order", target=("a", "b")),
        ForeignKey(columns=("up",), table="line", target=("id",)),
    }
    assert len(wide.columns) == 2000
    assert order.column('qu"ote 🙂') is not None


def test_database__that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match="no such file"):
        from_database(f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(DatabaseUnavailable, match=r"\*\*\*") as caught:
        from_database("postgresql://someone:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(caught.value)


def test_database__that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at " * 99)
    with pytest.raises((StatementFailed, DatabaseUnavailable)):
        from_database(f"sqlite:///{tmp_path}/text.db")
    for url in ("", "nonsense", "nosql://x", "postgresql://u:hunter2@host:port/x"):
        with pytest.raises(ConfigError) as caught:
            from_database(url)
        assert "hunter2" not in str(caught.value)


def test_role__that_may_not_read_is_told_so(shop: Shop) -> None:
    with psycopg.connect(shop[0], autocommit=True) as connection:
        connection.execute('REVOKE SELECT ON "Order 🙂" FROM PUBLIC')
        connection.execute("CREATE TABLE hidden (kind text)")
    try:
        with pytest.raises(StatementFailed, match="hidden") as caught:
            from_database(shop[1], samples=SampleRules())
        assert caught.value.sqlstate == "42501"
    finally:
        with psycopg.connect(shop[0], autocommit=True) as connection:
            connection.execute("DROP TABLE hidden")
