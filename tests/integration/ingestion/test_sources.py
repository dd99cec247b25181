"""Sources with a server of PostgreSQL: rows of its tables, and folders as `ingest` takes them."""

import json
import os
import uuid
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import make_url

from kosmos_rag import Engine, SourceDocument
from kosmos_rag.core.config import DatabaseSettings, IngestionSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.listing import Entry, Source
from kosmos_rag.ingestion.sources.registry import create_source

KEY = UUID("6f1c1d0e-0000-4000-8000-000000000001")


@pytest.fixture
def table(empty_database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database of its own, which KB_URL names."""
    monkeypatch.setenv("KB_URL", empty_database.admin_url or "")
    with psycopg.connect(empty_database.admin_url or "", autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE article (id uuid PRIMARY KEY, number int UNIQUE, code text UNIQUE, body text, day date,"
            " price numeric, facts jsonb, data bytea)"
        )
        connection.execute(
            "INSERT INTO article VALUES (%s, 7, 'a-7', 'about churn', %s, %s, %s, %s)",
            (KEY, date(2026, 1, 2), Decimal("1.50"), '{"a": [1]}', b"# From bytes"),
        )
        yield connection


def _source(**spec: Any) -> Source:
    values = {"kind": "sql", "name": "kb", "url_env": "KB_URL", "query": "SELECT * FROM article", **spec}
    return create_source({"text_column": "body", **values}, IngestionSettings())


def _loaded(source: Source) -> list[Any]:
    return [source.load(entry) for entry in source.listing()]


@pytest.mark.parametrize(("column", "name"), [("id", str(KEY)), ("number", "7"), ("code", "a-7")])
def test_sql__finds_a_row_again_by_an_id_of_any_type(column: str, name: str, table: psycopg.Connection[Any]) -> None:
    [entry] = _source(id_column=column).listing()
    stored = Entry(source=entry.source, etag=entry.etag, locator=json.loads(json.dumps(dict(entry.locator))))
    document = _source(id_column=column).load(stored)
    assert (document.source, document.data) == (f"sql://kb/{name}", b"about churn")


def test_sql__metadata_is_what_json_has(table: psycopg.Connection[Any]) -> None:
    [document] = _loaded(_source(metadata_columns=["day", "price", "facts", "id"], text_column="data"))
    assert document.metadata == {"day": "2026-01-02", "price": 1.5, "facts": {"a": [1]}, "id": str(KEY)}
    assert document.data == b"# From bytes"


def test_sql__casts_and_patterns_of_a_query_are_left_alone(table: psycopg.Connection[Any]) -> None:
    query = "SELECT number::text AS id, body FROM article WHERE code LIKE 'a%' AND body !~ '\\:x' AND ':y' <> '%s';"
    assert [document.source for document in _loaded(_source(query=query))] == ["sql://kb/7"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM missing", "does not exist"),
        ("INSERT INTO article (id) VALUES (gen_random_uuid()) RETURNING *", "syntax error"),
        ("SELECT *, setval('counter', 5) FROM article", "read-only"),
        ("SELECT * FROM article) q; COMMIT; DROP TABLE article; SELECT * FROM (SELECT 1", "query fails"),
    ],
)
def test_sql__a_query_that_fails_or_writes_is_a_failure(
    query: str, message: str, table: psycopg.Connection[Any]
) -> None:
    table.execute("CREATE SEQUENCE counter")
    listing = _source(query=query).listing()
    assert list(listing) == []
    [failure] = listing.failures
    assert failure.code == "unreadable"
    assert message in failure.message
    assert failure.message.isprintable()
    assert table.execute("SELECT count(*) FROM article").fetchone() == (1,)


def test_sql__streams(table: psycopg.Connection[Any]) -> None:
    numbers = "(SELECT generate_series(1, 1000000000) AS id) numbers"
    query = f"SELECT id, 'text ' || id / (1001 - id) AS body FROM {numbers}"
    pass_ = iter(_source(query=query).listing())
    assert [next(pass_).source for _ in range(500)][-1] == "sql://kb/500"
    listing = _source(query=query).listing()
    assert 0 < len(list(listing)) <= 1000
    assert "division by zero" in listing.failures[0].message


def test_sql__a_server_that_is_gone_is_unavailable(
    table: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    [entry] = _source().listing()
    monkeypatch.setenv("KB_URL", "postgresql://someone:hunter2@127.0.0.1:9/db")
    with pytest.raises(SourceError) as caught:
        _source().load(entry)
    assert caught.value.code == "unavailable"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("right", ["LOGIN", "SELECT"])
def test_sql__an_account_that_is_refused_is_told_by_its_variable(
    right: str, table: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An account that has expired is no server that is gone: `doctor` and an alert name it."""
    name = f"reader_{uuid.uuid4().hex}"
    table.execute(f"CREATE ROLE {name} LOGIN")
    if right == "LOGIN":
        table.execute(f"ALTER ROLE {name} NOLOGIN")
    monkeypatch.setenv(
        "KB_URL", make_url(os.environ["KB_URL"]).set(username=name).render_as_string(hide_password=False)
    )
    listing = _source().listing()
    assert list(listing) == []
    assert listing.error is not None
    assert listing.error.code == "no_permission"
    assert "KB_URL" in str(listing.error)


def test_ingest__heeds_ignore_files_and_removes_what_they_come_to_name(
    engine: Engine, tmp_path: Path, tenant_name: str
) -> None:
    for name in ("a.txt", "drafts/b.txt", "drafts/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    scope = engine.tenant(tenant_name)
    (tmp_path / "drafts" / ".kosmosignore").write_text("b.txt")
    assert scope.ingest([tmp_path]).new == 2
    (tmp_path / ".kosmosignore").write_text("drafts/")
    report = scope.ingest([tmp_path])
    assert (report.unchanged, report.removed) == (1, 1)
    assert [document.source for document in scope.documents()] == [f"{tmp_path.name}/a.txt"]


def test_ingest__takes_documents_of_a_source(engine: Engine, tmp_path: Path, tenant_name: str) -> None:
    file = tmp_path / "faq.jsonl"
    file.write_text('{"id": 1, "text": "about churn", "title": "Churn", "year": 2026}\n')
    source = create_source(
        {"kind": "json_lines", "path": str(file), "title_field": "title", "metadata_fields": ["year"]},
        IngestionSettings(),
    )
    scope = engine.tenant(tenant_name)
    assert scope.ingest(_loaded(source)).new == 1
    [document] = scope.documents()
    assert (document.source, document.title, document.metadata) == (
        f"{tmp_path.name}/faq.jsonl#1",
        "Churn",
        {"year": 2026},
    )


def test_git__cites_the_lines_of_the_hosted_file(engine: Engine, tenant_name: str) -> None:
    document = SourceDocument(
        source="git://handbook/leave.md",
        data=b"# Leave\n\nEach employee has thirty days of leave.\n",
        metadata={"link": "https://git.example.org/h/blob/1f2e/leave.md", "link_lines": "#L{start}-L{end}"},
    )
    scope = engine.tenant(tenant_name)
    scope.ingest([document])
    [citation] = scope.context("How many days of leave?").citations
    first, last = citation.lines
    assert citation.link == f"https://git.example.org/h/blob/1f2e/leave.md#L{first}-L{last}"
    assert citation.to_dict()["link"] == citation.link
