"""Guarded queries on real databases."""

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from kosmos_rag.core.errors import (
    ConfigError,
    DatabaseNotReady,
    DatabaseUnavailable,
    KosmosError,
    RequestError,
    StatementFailed,
)
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import from_database
from kosmos_rag.text2sql.errors import QueryRefused
from kosmos_rag.text2sql.sql.execute import QueryLimits, ReadOnlyDatabase

Shop = tuple[str, str]


def _open(shop: Shop, **limits: int) -> ReadOnlyDatabase:
    return ReadOnlyDatabase(shop[1], from_database(shop[1]), limits=QueryLimits(**limits))


def test_rows__come_with_names_and_are_cut_at_the_cap(shop: Shop) -> None:
    result = _open(shop, max_rows=3).run("SELECT id, name FROM teams ORDER BY id")
    assert (result.columns, result.truncated) == (("id", "name"), True)
    assert result.rows == ((1, "team 1"), (2, "team 2"), (3, "team 3"))
    (zone,) = _open(shop).run("SELECT extract(timezone FROM '2026-07-01 12:00'::timestamptz) FROM teams LIMIT 1").rows
    assert zone == (0,)
    whole = _open(shop, max_rows=50).run("SELECT id FROM teams")
    assert (len(whole.rows), whole.truncated) == (50, False)


def test_rows_beyond_the_cap_of_bytes__are_not_computed(shop: Shop) -> None:
    later_rows_fail = "SELECT lpad('x', 100) AS x, 1 / (50 - id) AS y FROM teams"
    result = _open(shop, max_bytes=250).run(later_rows_fail)
    assert (len(result.rows), result.truncated) == (2, True)
    with pytest.raises(StatementFailed, match="division by zero"):
        _open(shop).run(later_rows_fail)


def test_the_time_limit__holds_for_all_batches_together(shop: Shop) -> None:
    slow_rows = "SELECT (SELECT count(*) FROM generate_series(1, t.id + 400000) AS g(n)) AS c FROM teams AS t"
    with pytest.raises(StatementFailed) as caught:
        _open(shop, timeout_ms=1_000).run(slow_rows)
    assert caught.value.sqlstate == "57014"


def test_parameters__are_bound(shop: Shop) -> None:
    hostile = "x'; DROP TABLE teams; --"
    database = _open(shop)
    assert database.run("SELECT id FROM teams WHERE name = :name", {"name": hostile}).rows == ()
    sql = "SELECT id, 'a:b %s %(x)s' AS t FROM teams WHERE name LIKE :name AND id <= :most ORDER BY id"
    assert database.run(sql, {"name": "team%", "most": 1}).rows == ((1, "a:b %s %(x)s"),)


def test_queries__of_every_shape_run_as_they_were_written_anew(shop: Shop) -> None:
    database = _open(shop)
    for sql in (
        'SELECT "se""lect", kind FROM "Order 🙂" WHERE id = 1',
        "SELECT t.name, count(*) FROM games g JOIN teams t ON t.id = g.home GROUP BY t.name HAVING count(*) > 1",
        "WITH x AS (SELECT * FROM games) SELECT date_trunc('month', played_at)::date, count(*) FROM x GROUP BY 1",
        "SELECT id, row_number() OVER (PARTITION BY state ORDER BY id) FROM games WHERE state IN ('open', 'over')",
        "SELECT id FROM teams UNION SELECT home FROM open_games ORDER BY 1 LIMIT 5 OFFSET 1",
        "SELECT name, CASE WHEN mood = 'glad' THEN 1 ELSE 0 END, extract(year FROM now()) FROM teams",
        "SELECT string_agg(name, ', ' ORDER BY id) FILTER (WHERE id > 3), avg(id)::numeric(9, 2) FROM teams",
        "SELECT name FROM teams WHERE name ~* 'TEAM' AND name ILIKE 'team%' AND id BETWEEN 1 AND 3",
        "SELECT g.n, t.id FROM teams t CROSS JOIN generate_series(1, 2) AS g(n)",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id), round(avg(id), 2), max(name) FROM teams",
    ):
        assert database.run(sql).rows, sql


def test_role__that_may_write_is_refused(shop: Shop) -> None:
    database = ReadOnlyDatabase(shop[0], from_database(shop[0]))
    with pytest.raises(DatabaseNotReady, match="superuser"):
        database.run("SELECT id FROM teams")
    reader = shop[1].partition("://")[2].partition(":")[0]
    with psycopg.connect(shop[0], autocommit=True) as connection:
        connection.execute(f'GRANT INSERT ON games TO "{reader}"; GRANT pg_read_server_files TO "{reader}"'.encode())
        try:
            with pytest.raises(DatabaseNotReady) as caught:
                _open(shop).run("SELECT id FROM games")
        finally:
            connection.execute(
                f'REVOKE INSERT ON games FROM "{reader}"; REVOKE pg_read_server_files FROM "{reader}"'.encode()
            )
    assert caught.value.problems[:2] == ("the role is a member of pg_read_server_files", "the role may write games")


def test_slow_query__is_stopped(shop: Shop) -> None:
    started = time.monotonic()
    with pytest.raises(StatementFailed) as caught:
        _open(shop, timeout_ms=200, max_cost=10**12).run(
            "SELECT count(*) FROM generate_series(1, 2000000000) AS g(n), teams"
        )
    assert caught.value.sqlstate == "57014"
    assert time.monotonic() - started < 10


def test_query__that_the_planner_expects_to_cost_much_is_refused_before_it_runs(shop: Shop) -> None:
    costly = "SELECT count(*) FROM generate_series(1, 2000000000) AS g(n)"
    with pytest.raises(QueryRefused, match=r"a cost of 2\d+, and 10000000 is allowed: ask for fewer rows") as caught:
        _open(shop).run(costly)
    assert caught.value.code == "cost"
    assert _open(shop, max_cost=1).run("SELECT 1 AS one").rows == ((1,),)
    with pytest.raises(QueryRefused, match="1 is allowed"):
        _open(shop, max_cost=1).run("SELECT t.id FROM teams t, teams u")


@pytest.mark.parametrize(
    "value",
    [
        "array_fill(1, array[100000000])",
        "lpad('x', 100000000)",
        "lpad(name, id * 1000000)",
        "lpad(name, :length)",
        "replace(lpad('a', 10000, 'a'), 'a', lpad('a', 10000, 'a'))",
        "regexp_replace(lpad('a', 10000, 'a'), 'a', lpad('a', 10000, 'a'), 'g')",
        f"replace(replace(name, 'a', '{'a' * 40}'), 'a', '{'a' * 40}')",
        "replace(replace(name, 'a', name), 'a', name)",
        "array_to_string(string_to_array(name, NULL), lpad('a', 10000, 'a'))",
        "array_to_string(ARRAY[name, NULL], '', lpad('a', 10000, 'a'))",
        "replace(replace(lower(name), 'a', name || name), 'a', name)",
        "replace(name, 'a', (SELECT string_agg(t.name, '') FROM teams t))",
    ],
)
def test_value_of_any_size__is_not_made(shop: Shop, value: str) -> None:
    # The server makes such a value in one call, which no time limit ends.
    parameters = {"length": 100_000_000} if ":length" in value else {}
    with pytest.raises(QueryRefused) as caught:
        _open(shop).run(f"SELECT {value} AS x FROM teams", parameters)
    assert caught.value.code in {"function", "size"}


@pytest.mark.parametrize(
    "value",
    [
        "replace(replace(replace(name, '&', '&amp;'), '<', '&lt;'), 'team', :word)",
        "replace('{name} plays', '{name}', name)",
        "replace(replace(replace('{n} {i} {n}', '{n}', name), '{i}', id::text), '_', chr(32))",
        "replace(name, ' ', coalesce(upper(name), ''))",
        "array_to_string(ARRAY[name, name], concat(',', ' ')::text)",
        "replace(name, 'team', lpad(id::text, 5, '0'))",
        "array_to_string(string_to_array(name, ' '), ', ')",
        "regexp_replace(name, '(team) ([0-9]+)', '\\2: \\1')",
    ],
)
def test_replacement__by_a_short_text_is_run(shop: Shop, value: str) -> None:
    parameters = {"word": "side"} if ":word" in value else {}
    (row,) = _open(shop).run(f"SELECT {value} AS x FROM teams ORDER BY id LIMIT 1", parameters).rows
    assert "1" in row[0]


def test_padding__to_a_number_that_is_given_is_run(shop: Shop) -> None:
    sql = "SELECT lpad(id::text, :length, '0') AS x FROM teams ORDER BY id LIMIT 1"
    assert _open(shop).run(sql, {"length": 3}).rows == (("001",),)


def test_function__that_is_allowed_still_cannot_write_or_sleep(shop: Shop) -> None:
    with psycopg.connect(shop[0], autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION sneak() RETURNS integer LANGUAGE plpgsql SECURITY DEFINER AS "
            "$$ BEGIN INSERT INTO teams (name) VALUES ('sneaked'); RETURN 1; END $$"
        )
    schema = from_database(shop[1])
    database = ReadOnlyDatabase(shop[1], schema, limits=QueryLimits(timeout_ms=200), functions=["sneak", "pg_sleep"])
    with pytest.raises(StatementFailed) as caught:
        database.run("SELECT sneak() FROM teams")
    assert caught.value.sqlstate == "25006"
    with pytest.raises(StatementFailed) as caught:
        database.run("SELECT pg_sleep(20) FROM teams")
    assert caught.value.sqlstate == "57014"


def _without(schema: DatabaseSchema, name: str, column: str) -> DatabaseSchema:
    """A schema that does not know a column of one of its tables."""
    tables = [
        replace(
            table, columns=tuple(outcome for outcome in table.columns if (table.name, outcome.name) != (name, column))
        )
        for table in schema.tables
    ]
    return replace(schema, tables=tuple(tables))


HIDDEN = [
    "SELECT * FROM teams",
    "SELECT t.* FROM teams AS t",
    "SELECT to_json(t) FROM teams AS t",
    "SELECT t FROM teams AS t",
    "SELECT teams AS x FROM teams",
    "SELECT (SELECT password FROM teams LIMIT 1) FROM (SELECT 1 AS password) AS q",
    "SELECT count(*) AS password FROM teams GROUP BY id HAVING password LIKE 's%'",
    "SELECT g.id FROM games AS g NATURAL JOIN teams",
    "WITH a AS (SELECT * FROM teams) SELECT id FROM a",
]


def test_column__that_the_schema_does_not_have_is_not_shown(shop: Shop) -> None:
    schema = from_database(shop[1])
    database = ReadOnlyDatabase(shop[1], _without(schema, "teams", "password"))
    for sql in HIDDEN:
        assert ReadOnlyDatabase(shop[1], schema).run(sql), "nothing else is wrong with it"
        with pytest.raises(QueryRefused) as caught:
            database.run(sql)
        assert caught.value.code == "unknown_column", sql
    for sql in (
        "SELECT t.c FROM teams AS t(a, b, c)",
        "SELECT j.password FROM (teams AS t CROSS JOIN seats AS s) AS j",
        "SELECT j.c FROM (teams AS t CROSS JOIN seats AS s) AS j(a, b, c)",
        "SELECT to_json(j) FROM (teams AS t CROSS JOIN seats AS s) AS j",
    ):
        with pytest.raises(QueryRefused):
            database.run(sql)
    for sql in (
        "SELECT name, count(*) FROM teams GROUP BY name",
        "SELECT t.id FROM teams AS t JOIN (SELECT * FROM games) AS g ON g.home = t.id",
        "WITH a AS (SELECT id, name FROM teams) SELECT * FROM a",
    ):
        assert database.run(sql).rows, sql


def test_schema__of_another_dialect_is_read_as_the_database_reads(shop: Shop) -> None:
    schema = replace(_without(from_database(shop[1]), "teams", "password"), dialect="sqlite")
    with pytest.raises(QueryRefused):
        ReadOnlyDatabase(shop[1], schema).run('SELECT "password" FROM teams')


@pytest.mark.parametrize(
    ("definition", "dropped", "sql"),
    [
        (
            "CREATE FUNCTION lower(varchar) RETURNS text LANGUAGE sql AS $$ SELECT 'mine' $$",
            "DROP FUNCTION lower(varchar)",
            "SELECT lower(state) FROM games",
        ),
        (
            (
                "CREATE FUNCTION same(varchar, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'; "
                "CREATE OPERATOR = (FUNCTION = same, LEFTARG = varchar, RIGHTARG = text)"
            ),
            "DROP FUNCTION same CASCADE",
            "SELECT id FROM games WHERE state = 'open'",
        ),
    ],
)
def test_function__of_somebodys_own_under_the_name_of_the_servers_is_not_run(
    shop: Shop, definition: str, dropped: str, sql: str
) -> None:
    database = _open(shop)
    assert database.run(sql).rows
    with psycopg.connect(shop[0], autocommit=True) as connection:
        connection.execute(definition.encode())
        try:
            with pytest.raises(QueryRefused, match="the database defines a function") as caught:
                database.run(sql)
        finally:
            connection.execute(dropped.encode())
    assert caught.value.code == "function"


def test_text__with_a_backslash_means_itself_whatever_the_role_is_set_to(shop: Shop) -> None:
    reader = shop[1].partition("://")[2].partition(":")[0]
    sql = "SELECT 'a\\' AS x, '; DELETE FROM teams --' AS y FROM teams LIMIT 1"
    with psycopg.connect(shop[0], autocommit=True) as connection:
        connection.execute(f'ALTER ROLE "{reader}" SET standard_conforming_strings = off'.encode())
        try:
            assert _open(shop).run(sql).rows == (("a\\", "; DELETE FROM teams --"),)
        finally:
            connection.execute(f'ALTER ROLE "{reader}" RESET standard_conforming_strings'.encode())


def test_query__that_the_database_does_not_understand_is_refused_before_it_runs(shop: Shop) -> None:
    for sql in (
        "SELECT name + 1 FROM teams",
        "SELECT name, count(*) FROM teams",
        "SELECT id FROM teams WHERE name = 1",
    ):
        with pytest.raises(QueryRefused) as caught:
            _open(shop).run(sql)
        assert caught.value.code == "plan"
    with pytest.raises(QueryRefused) as caught:
        _open(shop).run("DELETE FROM teams")
    assert caught.value.code == "not_a_query"


def test_database__that_goes_away_is_unavailable(shop: Shop) -> None:
    database = _open(shop, timeout_ms=60_000, max_cost=10**12)
    failures: list[KosmosError] = []

    def ask() -> None:
        try:
            database.run("SELECT count(*) FROM generate_series(1, 2000000000) AS g(n), teams")
        except KosmosError as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    reader = shop[1].partition("://")[2].partition(":")[0]
    ended = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE usename = %s AND state = 'active' AND query ILIKE 'fetch%%'"
    )
    with psycopg.connect(shop[0], autocommit=True) as connection:
        deadline = time.monotonic() + 20
        while asking.is_alive() and time.monotonic() < deadline:
            connection.execute(ended, (reader,))
            time.sleep(0.05)
    asking.join(20)
    assert [type(failure) for failure in failures] == [DatabaseUnavailable]


@pytest.fixture
def lite(tmp_path: Path) -> str:
    path = tmp_path / "lite.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE t (id integer, name text); INSERT INTO t VALUES (1, 'a'), (2, 'b:c')")
    return f"sqlite:///{path}"


def test_sqlite__is_guarded_as_well(lite: str) -> None:
    database = ReadOnlyDatabase(lite, from_database(lite), limits=QueryLimits(timeout_ms=300, max_rows=1))
    result = database.run(
        'SELECT ID, strftime("%Y", :day) AS y FROM T WHERE name <> "x:y" ORDER BY id', {"day": "2026-01-02"}
    )
    assert (result.rows, result.truncated) == (((1, "2026"),), True)
    for sql in ("DELETE FROM t", "PRAGMA query_only = OFF", "ATTACH 'x.db' AS x", "SELECT load_extension('x')"):
        with pytest.raises(QueryRefused):
            database.run(sql)
    with pytest.raises(StatementFailed, match="too big"):
        database.run(
            "WITH RECURSIVE r(n, s) AS (SELECT 1, name FROM t UNION ALL SELECT n + 1, s || s FROM r WHERE n < 40) "
            "SELECT max(length(s)) FROM r"
        )
    schema = _without(from_database(lite), "t", "name")
    for sql in ('SELECT "name" FROM t', "SELECT * FROM t", "SELECT (SELECT name FROM t) AS x FROM (SELECT 1 AS name)"):
        with pytest.raises(QueryRefused):
            ReadOnlyDatabase(lite, schema).run(sql)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c FROM n, t"
    with pytest.raises(StatementFailed) as caught:
        database.run(endless)
    assert caught.value.sqlstate == "57014"


def test_run__refuses_other_databases_and_invalid_limits(lite: str) -> None:
    schema = from_database(lite)
    with pytest.raises((RequestError, ConfigError)):
        ReadOnlyDatabase("mysql+pymysql://x/y", schema)
    for limits in ({"timeout_ms": 0}, {"max_rows": 0}):
        with pytest.raises(RequestError, match="at least 1"):
            QueryLimits(**limits)
