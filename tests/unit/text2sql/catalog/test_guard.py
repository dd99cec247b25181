"""The text of queries, checked."""

import pytest

from kosmos_rag.text2sql.errors import QueryRefused
from kosmos_rag.text2sql.sql.validate import check_query
from tests.unit.text2sql.catalog.worlds import database, table

SCHEMA = database(
    table(
        "orders", "customer_id integer", "total numeric", "state", "at timestamp",
        keys={"customer_id": "customers.id"},
    ),
    table("customers", "name", "Mixed"),
    table("user", "name"),
    table("lines", "order_id integer", schema="sales"),
)  # fmt: skip


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM orders",
        "select o.total from orders o join customers c on c.id = o.customer_id where c.name like '%a:b%'",
        "WITH big AS (SELECT * FROM orders WHERE total > 9) SELECT state, sum(total) AS s FROM big GROUP BY 1",
        "SELECT id FROM orders UNION ALL SELECT id FROM customers ORDER BY 1 LIMIT 3",
        'SELECT "Mixed" FROM public.customers c WHERE EXISTS (SELECT 1 FROM sales.lines l WHERE l.order_id = c.id)',
        'SELECT name FROM "user"',
        "SELECT date_trunc('month', at), to_char(at, 'YYYY'), extract(year from at) FROM orders",
        "SELECT at FROM orders GROUP BY at HAVING sum(total) > 1 AND at > now() - interval '1 day'",
        "SELECT row_number() OVER (PARTITION BY state ORDER BY total DESC) FROM orders",
        "SELECT d.n, o.id FROM orders o, generate_series(1, 3) AS d(n)",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY total) FROM orders",
        "SELECT string_agg(state, ',') FILTER (WHERE total > 1) FROM orders",
        "SELECT lower(state) || 'x', total::int, coalesce(state, '-'), CASE WHEN total > 1 THEN 'a' END FROM orders;",
        "SELECT o.total -- a comment; DROP TABLE orders\n FROM orders o /* ; DELETE FROM orders */",
        "SELECT total FROM orders; -- that is all",
        "SELECT CURRENT_TIMESTAMP, current_date, at::timestamptz, state::tsvector FROM orders",
        "(SELECT total FROM orders)",
        "TABLE orders",
    ],
)  # fmt: skip
def test_query__that_only_reads_passes(sql: str) -> None:
    checked = check_query(sql, SCHEMA)
    assert "--" not in checked.sql
    assert "/*" not in checked.sql
    assert check_query(checked.sql.replace("\\:", ":"), SCHEMA).sql == checked.sql


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("", "several_statements"),
        ("SELECT 1 FROM orders; SELECT 2 FROM orders", "several_statements"),
        ("SELECT 1 FROM orders; DROP TABLE orders", "several_statements"),
        ("SELECT 1 FROM orders /* */; -- \n DELETE FROM orders", "several_statements"),
        ("SELECT 1 FROM orders -- \r\n; DELETE FROM orders", "several_statements"),
        ("SELECT FROM WHERE", "unreadable"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, "unreadable"),
        ("INSERT INTO orders VALUES (1)", "not_a_query"),
        ("UPDATE orders SET total = 0", "not_a_query"),
        ("DELETE FROM orders", "not_a_query"),
        ("DROP TABLE orders", "not_a_query"),
        ("TRUNCATE orders", "not_a_query"),
        ("CREATE TABLE x AS SELECT * FROM orders", "not_a_query"),
        ("COPY orders TO '/tmp/x'", "not_a_query"),
        ("COPY (SELECT * FROM orders) TO PROGRAM 'sh'", "not_a_query"),
        ("SET statement_timeout = 0", "not_a_query"),
        ("RESET ROLE", "not_a_query"),
        ("DO $$ BEGIN DELETE FROM orders; END $$", "not_a_query"),
        ("CALL p()", "not_a_query"),
        ("EXPLAIN ANALYZE DELETE FROM orders", "not_a_query"),
        ("BEGIN", "not_a_query"),
        ("WITH x AS (INSERT INTO orders VALUES (1) RETURNING *) SELECT * FROM x", "not_a_query"),
        ("WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x", "not_a_query"),
        ("SELECT * INTO copy FROM orders", "not_a_query"),
        ("SELECT * FROM orders FOR UPDATE", "locks"),
        ("SELECT * FROM (SELECT * FROM orders FOR SHARE) x", "locks"),
        ("SELECT pg_sleep(10) FROM orders", "function"),
        ("SELECT PG_SLEEP /* x */ (10) FROM orders", "function"),
        ('SELECT "pg_sleep"(10) FROM orders', "function"),
        ("SELECT pg_catalog.pg_sleep(10) FROM orders", "function"),
        ("SELECT public.sum(total) FROM orders", "function"),
        ("SELECT * FROM orders WHERE (SELECT pg_sleep(10)) IS NULL", "function"),
        ("SELECT set_config('role', 'postgres', false) FROM orders", "function"),
        ("SELECT current_setting('x') FROM orders", "function"),
        ("SELECT pg_read_file('/etc/passwd')", "function"),
        ("SELECT * FROM pg_ls_dir('.') AS f(name)", "function"),
        ("SELECT * FROM dblink('host=x', 'DELETE') AS t(a int)", "function"),
        ("SELECT lo_import('/etc/passwd')", "function"),
        ("SELECT query_to_xml('DELETE FROM orders', true, true, '')", "function"),
        ("SELECT nextval('s')", "function"),
        ("SELECT pg_terminate_backend(1)", "function"),
        ("SELECT pg_advisory_lock(1)", "function"),
        ("SELECT my_function(total) FROM orders", "function"),
        ("SELECT encrypt(state, 'k') FROM orders", "function"),
        ("SELECT current_user FROM orders", "function"),
        ("SELECT total FROM orders WHERE state = SESSION_USER OR state = current_schema", "function"),
        ("SELECT * FROM XMLTABLE('/x' PASSING state COLUMNS a text) AS x, orders", "function"),
        ("SELECT nextval('s') FROM orders LIMIT (SELECT nextval('s'))", "function"),
        ("SELECT (o).password FROM orders AS o", "syntax"),
        ("SELECT E'a\\'' || state FROM orders", "syntax"),
        ("SELECT $$a$$ FROM orders", "syntax"),
        ("SELECT U&'\\0041' FROM orders", "syntax"),
        ("SELECT total OPERATOR(pg_catalog.+) 1 FROM orders", "syntax"),
        ("SELECT generate_series(16384, 17000)::oid::regclass FROM orders", "syntax"),
        ("SELECT regclass '16384' FROM orders", "syntax"),
        ("SELECT '{16384}'::_regclass FROM orders", "syntax"),
        ("SELECT to_json(NULL::secrets) FROM orders", "syntax"),
        ("SELECT to_json(NULL::orders) FROM orders", "syntax"),
        ("SELECT id FROM orders QUALIFY row_number() OVER (ORDER BY id) = 1", "syntax"),
        ("SELECT * FROM orders PIVOT(sum(total) FOR state IN ('x'))", "syntax"),
        ("SELECT * FROM secrets", "unknown_table"),
        ("SELECT * FROM pg_catalog.pg_authid", "unknown_table"),
        ("SELECT * FROM pg_shadow", "unknown_table"),
        ("SELECT * FROM information_schema.tables", "unknown_table"),
        ("SELECT * FROM other.public.orders", "unknown_table"),
        ("SELECT * FROM lines", "unknown_table"),
        ("WITH customers AS (SELECT * FROM secrets) SELECT * FROM customers", "unknown_table"),
        ("WITH secrets AS (SELECT * FROM secrets) SELECT * FROM secrets", "unknown_table"),
        ("WITH a AS (SELECT * FROM secrets), secrets AS (SELECT 1 AS x) SELECT * FROM a", "unknown_table"),
        ("SELECT (WITH secrets AS (SELECT 1 AS x) SELECT x FROM secrets), s.x FROM secrets AS s", "unknown_table"),
        ("WITH c AS (SELECT 1 AS a) SELECT * FROM (secrets AS c CROSS JOIN orders) AS j, c AS c", "unknown_table"),
        ("SELECT (SELECT password FROM secrets) FROM orders", "unknown_table"),
        ("SELECT password FROM orders", "unknown_column"),
        ("SELECT o.password FROM orders o", "unknown_column"),
        ("WITH t1 AS (SELECT '' AS password FROM orders) SELECT o.password FROM customers AS o, t1", "unknown_column"),
        ("SELECT password FROM orders, generate_series(1, 1) AS g", "unknown_column"),
        ("SELECT mixed FROM customers", "unknown_column"),
        ("SELECT ctid FROM orders", "unknown_column"),
        ("SELECT total FROM orders WHERE id = $1", "parameters"),
        ("SELECT total FROM orders WHERE id = ?", "parameters"),
        ("SELECT total FROM orders WHERE id = :id", "parameters"),
    ],
)
def test_query__that_breaks_a_rule_is_refused(sql: str, code: str) -> None:
    with pytest.raises(QueryRefused) as caught:
        check_query(sql, SCHEMA)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_parameters__are_bound_by_name_and_all_of_them() -> None:
    sql = "SELECT total FROM orders WHERE state = :state AND at > :since AND state <> ':state' AND total::int > 1"
    checked = check_query(sql, SCHEMA, parameters={"state": "open", "since": "2026-01-01"})
    assert checked.sql.count(":state") == 2
    assert "\\:state'" in checked.sql
    with pytest.raises(QueryRefused, match="no parameter other"):
        check_query(sql, SCHEMA, parameters={"state": "open", "since": "x", "other": 1})


def test_functions__of_the_databases_own_pass_where_they_are_allowed() -> None:
    sql = "SELECT my_function(total) FROM orders"
    assert check_query(sql, SCHEMA, functions=["my_function"]).analysis.columns == (("orders", "total"),)


def test_types__of_the_columns_pass_and_no_others_of_somebodys_own() -> None:
    schema = database(table("moods", "mood mood", "moods mood[]"))
    for sql in ("SELECT 'glad'::mood FROM moods", "SELECT id FROM moods WHERE '{glad}'::mood[] && moods"):
        assert check_query(sql, schema).analysis.tables == ("moods",)
    with pytest.raises(QueryRefused, match="temper is no type of a column"):
        check_query("SELECT 'glad'::temper FROM moods", schema)


def test_a_clause_with_a_name__is_read_where_it_is_in_sight() -> None:
    sql = (
        "WITH RECURSIVE up(id) AS (SELECT id FROM orders UNION ALL SELECT up.id + 1 FROM up WHERE up.id < 9), "
        "last AS (SELECT max(id) AS id FROM up) SELECT c.name FROM last JOIN customers AS c ON c.id = last.id"
    )
    assert check_query(sql, SCHEMA).analysis.tables == ("orders", "customers")


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT id FROM orders", 10),
        ("SELECT id FROM orders LIMIT 3", 3),
        ("SELECT id FROM orders LIMIT 30 OFFSET 2", 10),
        ("SELECT id FROM orders FETCH FIRST 3 ROWS WITH TIES", 10),
    ],
)
def test_cap_of_rows__is_a_bound_value_so_that_no_second_statement_is_taken(sql: str, rows: int) -> None:
    checked = check_query(sql, SCHEMA, max_rows=10)
    assert checked.parameters == {"kosmos_rows": rows}
    assert checked.sql.count(":kosmos_rows") == 1
    mine = check_query(f"{sql} -- x", SCHEMA, max_rows=10)
    assert mine.sql == checked.sql


def test_cap_of_rows__leaves_a_parameter_of_its_name_alone() -> None:
    sql = "SELECT id FROM orders WHERE id = :kosmos_rows"
    checked = check_query(sql, SCHEMA, parameters={"kosmos_rows": 7}, max_rows=10)
    assert checked.parameters == {"kosmos_rows": 7, "kosmos_rows_": 10}


def test_suggestions__name_the_table_that_was_meant() -> None:
    with pytest.raises(QueryRefused, match="did you mean orders"):
        check_query("SELECT total FROM order_s", SCHEMA)


def test_sqlite__takes_names_in_double_quotes_for_text_where_they_name_nothing() -> None:
    schema = database(table("Team", "Name"), dialect="sqlite")
    checked = check_query('SELECT NAME FROM team WHERE "name" = "Ajax"', schema)
    assert checked.analysis.columns == (("Team", "Name"),)
    assert check_query("SELECT strftime('%Y', name), CURRENT_TIMESTAMP, CAST(name AS own) FROM team", schema)
    for function in (
        "load_extension('x')",
        "readfile('x')",
        "writefile('x', 'y')",
        "fts3_tokenizer('x')",
        "printf('%.*c', 9, 'x')",
    ):
        with pytest.raises(QueryRefused):
            check_query(f"SELECT {function} FROM team", schema)
