from kosmos_rag.storage.dump_digest import TableDigest, describe_differences, digest_tables

DUMP = """
SET row_security = off;
COPY kosmos.tenants (tenant_id, name) FROM stdin;
1\tacme
2\tother
\\.

COPY kosmos.empty (tenant_id) FROM stdin;
\\.
SELECT pg_catalog.setval('kosmos.audit_event_positions', 4, true);
COPY other.table (id) FROM stdin;
3
\\.
"""


def _digest(text: str) -> dict[str, TableDigest]:
    return digest_tables(text.encode().splitlines(keepends=True))


def test_digest__counts_the_rows_of_each_table_of_the_schema() -> None:
    assert {table: digest.rows for table, digest in _digest(DUMP).items()} == {"tenants": 2, "empty": 0}


def test_digest__does_not_depend_on_the_order_of_rows() -> None:
    assert _digest(DUMP) == _digest(DUMP.replace("1\tacme\n2\tother\n", "2\tother\n1\tacme\n"))


def test_digest__of_two_equal_rows_is_not_that_of_none() -> None:
    twice = _digest(DUMP.replace("1\tacme\n", "1\tacme\n1\tacme\n"))["tenants"]
    assert twice.rows == 3
    assert twice.sha256_sum != _digest(DUMP)["tenants"].sha256_sum


def test_differences__name_tables_rows_and_counts() -> None:
    changed = _digest(DUMP.replace("acme", "acne"))
    fewer = _digest(DUMP.replace("2\tother\n", ""))
    assert describe_differences(_digest(DUMP), _digest(DUMP)) == []
    assert describe_differences(_digest(DUMP), changed) == ["tenants has rows that are not those of the file"]
    assert describe_differences(_digest(DUMP), fewer) == ["tenants has 2 rows in the file and 1 in the database"]
    assert describe_differences(_digest(DUMP), {}) == ["tenants has 2 rows in the file and 0 in the database"]
