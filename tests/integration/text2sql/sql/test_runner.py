"""Queries of readers on a described database: off by default, capped, audited; and questions answered with rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.errors import ConfigError, NotFound, RequestError, StatementFailed
from kosmos_rag.core.types import AuditKind, AuditOutcome
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.text2sql.answer import answer_question, extract_sql
from kosmos_rag.text2sql.catalog.sources import from_database
from kosmos_rag.text2sql.errors import QueryRefused
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.sql.execute import QueryLimits, ReadOnlyDatabase
from kosmos_rag.text2sql.sql.runner import QueryRunner
from tests.integration.variants import opened
from tests.unit.models.llm.chat_server import running, writes

Shop = tuple[str, str]
VARIABLE = "KOSMOS_TEST_SHOP_URL"


@contextmanager
def _reader(
    settings: Settings, tenant_name: str, shop: Shop, **changes: Any
) -> Iterator[tuple[Engine, Tenant, SchemaGrounding]]:
    enabled = {"text2sql.databases": {f"{tenant_name}/schema/shop": VARIABLE}, "rag.audit.enabled": True}
    with opened(settings, enabled | changes) as engine:
        engine.tenant(tenant_name).collections.create("schema", preset="schema")
        tenant = engine.tenant(tenant_name, collection="schema", subject="ann")
        grounding = SchemaGrounding(tenant)
        grounding.build(from_database(shop[1], name="shop"))
        yield engine, tenant, grounding


def test_a_query__is_capped_and_in_the_audit_log_and_off_by_default(
    settings: Settings, tenant_name: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, shop[1])
    limits = {"text2sql.max_rows": 3, "text2sql.max_bytes": 60}
    with _reader(settings, tenant_name, shop, **limits) as (engine, tenant, grounding):
        schema = grounding.schema("shop")
        runner = QueryRunner(tenant, "schema")
        assert runner.databases() == ["shop"]
        result = runner.run(schema, "SELECT name, id FROM teams WHERE id > :least ORDER BY id", {"least": 1})
        assert (result.rows, result.truncated) == ((("team 2", 2), ("team 3", 3), ("team 4", 4)), True)
        assert (result.tables, result.used_columns) == (("teams",), (("teams", "name"), ("teams", "id")))
        wide = runner.run(schema, "SELECT lpad('x', 25) AS x FROM teams")
        assert (len(wide.rows), wide.truncated) == (2, True), "60 bytes have room for two rows of 29"
        assert runner.run(schema, "SELECT lpad('x', 100) AS x FROM teams").rows == ()
        odd = runner.run(schema, "SELECT decode('00ff', 'hex') AS b, 'NaN'::float AS n, now()::date AS d").to_dict()
        assert odd["rows"][0][:2] == ["AP8=", "NaN"]
        with pytest.raises(QueryRefused) as caught:
            runner.run(schema, "SELECT 1 / (id - id) FROM teams")
        assert (caught.value.code, "division by zero" in str(caught.value)) == ("failed", True)
        assert "postgresql" not in str(caught.value), "no address"
        with pytest.raises(QueryRefused, match="there is no table secrets"):
            runner.run(schema, "SELECT * FROM secrets")
        records = tenant.audit.find(subject="ann", limit=20)
        texts = {record.question: record.outcome for record in records}
        assert texts["query on shop: SELECT * FROM secrets"] == AuditOutcome.REFUSED
        assert [outcome for text, outcome in texts.items() if "ORDER BY id LIMIT" in str(text)] == [AuditOutcome.HITS]
        assert {record.kind for record in records} == {AuditKind.QUERY}
        assert tenant.audit.list_failed_questions() == [], "refused SQL is no question to the documents"
        assert len(records) == 6
        for other in (engine.tenant(f"{tenant_name}x"), engine.tenant(tenant_name)):
            with pytest.raises(NotFound, match="not enabled"):
                QueryRunner(other, "schema" if other.name != tenant_name else "others").run(schema, "SELECT 1")
        monkeypatch.delenv(VARIABLE)
        with pytest.raises(ConfigError, match=f"{VARIABLE} is not set"):
            runner.require("shop")
        with pytest.raises(RequestError, match="no database 'other'"):
            grounding.schema("other")


def test_a_slow_query__is_a_time_out(
    settings: Settings, tenant_name: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, shop[1])
    limits = {"text2sql.timeout_ms": 200, "text2sql.max_cost": 10**9}
    with _reader(settings, tenant_name, shop, **limits) as (_, tenant, grounding):
        with pytest.raises(StatementFailed) as caught:
            QueryRunner(tenant, "schema").run(
                grounding.schema("shop"), "SELECT count(*) FROM generate_series(1, 2000000000) AS g(n)"
            )
        assert caught.value.sqlstate == "57014"
        assert tenant.audit.find(limit=1)[0].outcome == AuditOutcome.REFUSED


def test_a_question__is_answered_with_rows_and_the_evidence(
    settings: Settings, tenant_name: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, shop[1])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as server:
        server.replies = [
            writes("```sql\nSELECT title FROM teams WHERE id = 1;\n```"),
            writes("SELECT name FROM teams WHERE id = 1"),
            writes("DROP TABLE teams"),
        ]
        model = {"language_model.url": server.url(), "language_model.model": "scripted"}
        with _reader(settings, tenant_name, shop, **model) as (_, tenant, grounding):
            runner = QueryRunner(tenant, "schema")
            answer = answer_question(tenant, grounding, runner, "What is the name of the first team?")
            assert [attempt.code for attempt in answer.attempts] == ["unknown_column", None]
            assert answer.result is not None
            assert answer.result.rows == (("team 1",),)
            assert [item.id for item in answer.citations] == [
                "schema_model:shop.teams", "schema_column:shop.teams.name", "schema_column:shop.teams.id",
            ]  # fmt: skip
            first, repair = (request[2]["messages"][-1]["content"] for request in server.requests)
            assert answer.prompt in first
            assert "What is the name of the first team?" in first
            assert "SELECT title FROM teams WHERE id = 1" in repair
            assert str(answer.attempts[0].error) in repair
            refused = answer_question(tenant, grounding, runner, "Which teams are there?")
            assert (refused.result, [item.code for item in refused.attempts]) == (None, ["not_a_query"] * 2)
            payload = refused.to_dict()
            assert (payload["refused"], payload["result"], payload["citations"]) == (True, None, [])
            assert len(server.requests) == 4, "one repair and no more"


def test_a_question_without_schema_or_model__says_so(
    settings: Settings, tenant_name: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, shop[1])
    with _reader(settings, tenant_name, shop) as (engine, tenant, grounding):
        with pytest.raises(ConfigError, match="no language model is configured"):
            answer_question(tenant, grounding, QueryRunner(tenant, "schema"), "names of teams")
        nobody = engine.tenant(f"{tenant_name}x", collection="schema")
        with pytest.raises(NotFound, match="no schema here that you may read"):
            answer_question(nobody, SchemaGrounding(nobody), QueryRunner(nobody, "schema"), "names of teams")


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("SELECT 1;", "SELECT 1"),
        ("Here it is:\n```sql\nSELECT a\nFROM t;\n```\nIt reads t.", "SELECT a\nFROM t"),
        ("```\nSELECT 2\n```", "SELECT 2"),
        ("", ""),
    ],
)
def test_sql__is_taken_from_what_a_model_writes(text: str, sql: str) -> None:
    assert extract_sql(text) == sql


WAYS_ROUND = (
    "SELECT set_config('statement_timeout', '0', true) FROM teams",
    "SELECT pg_catalog.set_config('transaction_read_only', 'off', true) FROM teams",
    "SELECT pg_notify('channel', name) FROM teams",
    "SELECT pg_cancel_backend(1) FROM teams",
    "SELECT pg_stat_file('postgresql.conf') FROM teams",
    "SELECT pg_read_binary_file('/etc/passwd') FROM teams",
    "SELECT pg_export_snapshot() FROM teams",
    "SELECT txid_current() FROM teams",
    "SELECT pg_try_advisory_lock(1) FROM teams",
    "SELECT pg_advisory_xact_lock(1) FROM teams",
    "SELECT lo_export(1, '/tmp/x') FROM teams",
    "SELECT lo_from_bytea(0, 'x') FROM teams",
    "SELECT database_to_xml(true, true, '') FROM teams",
    "SELECT table_to_xml('teams', true, true, '') FROM teams",
    "SELECT ts_stat('SELECT note FROM games') FROM teams",
    "SELECT * FROM ts_stat('SELECT note FROM games') AS s",
    "SELECT currval('teams_id_seq') FROM teams",
    "SELECT setval('teams_id_seq', 1) FROM teams",
    "SELECT has_table_privilege('teams', 'INSERT') FROM teams",
    "SELECT to_regclass('pg_authid') FROM teams",
    "SELECT obj_description('teams'::regclass) FROM teams",
    "SELECT 'teams'::regclass::oid FROM teams",
    "SELECT pg_relation_size('teams') FROM teams",
    "SELECT inet_server_addr() FROM teams",
    "SELECT * FROM pg_stat_activity",
    "SELECT * FROM pg_catalog.pg_proc",
    "SELECT * FROM teams TABLESAMPLE SYSTEM (10) FOR UPDATE",
    "SELECT * FROM ONLY pg_authid",
    "WITH x AS MATERIALIZED (UPDATE teams SET name = 'x' RETURNING id) SELECT * FROM x",
    "SELECT * FROM ROWS FROM (pg_ls_waldir()) AS w",
    "VALUES ((SELECT passwd FROM pg_shadow LIMIT 1))",
    "MERGE INTO teams USING games ON false WHEN NOT MATCHED THEN INSERT (name) VALUES ('x')",
    "EXPLAIN (ANALYZE) SELECT pg_sleep(1) FROM teams",
    "PREPARE p AS SELECT 1",
    "LISTEN channel",
)
"""Ways round a guard, in addition to those of test_guard.py and test_execution.py."""


def test_ways_round_the_guard__are_all_refused(shop: Shop) -> None:
    database = ReadOnlyDatabase(shop[1], from_database(shop[1]), limits=QueryLimits(timeout_ms=1_000))
    assert len(set(WAYS_ROUND)) >= 30
    for sql in WAYS_ROUND:
        with pytest.raises(QueryRefused):
            database.run(sql)
