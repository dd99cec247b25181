"""Rows of the tables of segments."""

import psycopg

_TABLES = ("indexes", "segments", "postings", "unsegmented_terms")


def count_rows(admin: psycopg.Connection) -> dict[str, int]:
    """Return the rows of each table, of all tenants."""
    return {
        table: row[0]
        for table in _TABLES
        if (row := admin.execute(f"SELECT count(*) FROM kosmos.{table}".encode()).fetchone())
    }
