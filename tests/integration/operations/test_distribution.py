"""The plan of `migrate --distribute` against the real tables: every table has one class, every reference is allowed.

No Citus is asked: where the plan is run, its functions are ones that note their calls. tests/citus/ has the rest.
"""

import json
import re
from collections.abc import Iterator

import psycopg
import pytest

from kosmos_rag import Engine, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseNotReady
from kosmos_rag.storage.citus import (
    ANCHOR,
    DISTRIBUTED,
    FUNCTIONS_OF_POLICIES,
    LOCAL,
    NODE_FUNCTIONS,
    plan,
    preview,
    render,
)
from kosmos_rag.storage.expected_catalog import VERSION
from kosmos_rag.storage.functions import load_functions
from kosmos_rag.storage.setup import distribute_tables
from kosmos_rag.storage.tenants import tenant
from tests.citus.statements import of_distributed_tables, written_out
from tests.commands import run_command, set_variables

_TABLES = """
SELECT relname FROM pg_class
 WHERE relnamespace = 'kosmos'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
_REFERENCES = """
SELECT f.relname, t.relname, c.confdeltype::text, c.confupdtype::text,
       ARRAY(SELECT a.attname FROM unnest(c.conkey) k JOIN pg_attribute a ON a.attrelid = f.oid AND a.attnum = k),
       ARRAY(SELECT a.attname FROM unnest(c.confkey) k JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k)
  FROM pg_constraint c JOIN pg_class f ON f.oid = c.conrelid JOIN pg_class t ON t.oid = c.confrelid
 WHERE c.connamespace = 'kosmos'::regnamespace AND c.contype = 'f' AND c.conparentid = 0
"""
_SEQUENCES = """
SELECT r.relname, a.attname FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid
  LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
 WHERE r.relnamespace = 'kosmos'::regnamespace
   AND (a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval%')
"""
_WITH_TENANT = """
SELECT r.relname FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid
 WHERE r.relnamespace = 'kosmos'::regnamespace AND r.relkind IN ('r', 'p') AND NOT r.relispartition
   AND a.attname = 'tenant_id' AND a.attnotnull
"""
_UNIQUE = """
SELECT r.relname, ARRAY(SELECT a.attname FROM unnest(x.indkey[0:x.indnkeyatts - 1]) WITH ORDINALITY k(number, place)
               JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = k.number ORDER BY k.place)
  FROM pg_index x JOIN pg_class r ON r.oid = x.indrelid
 WHERE r.relnamespace = 'kosmos'::regnamespace AND x.indisunique
"""
# What stands in for Citus: each call is noted, and nothing is distributed.
_CITUS = """
CREATE TABLE public.calls (number int GENERATED ALWAYS AS IDENTITY, call text);
CREATE FUNCTION public.create_distributed_table(t regclass, k text, colocate_with text) RETURNS void LANGUAGE sql
    AS $$ INSERT INTO public.calls (call) VALUES (format('%s by %s with %s', t, k, colocate_with)) $$;
CREATE FUNCTION public.create_distributed_function(f regprocedure) RETURNS void LANGUAGE sql
    AS $$ INSERT INTO public.calls (call) VALUES (format('%s', f)) $$;
CREATE FUNCTION public.truncate_local_data_after_distributing_table(t regclass) RETURNS void LANGUAGE sql
    AS $$ INSERT INTO public.calls (call) VALUES (format('%s truncated', t)) $$;
"""


@pytest.fixture
def admin(database: DatabaseSettings) -> Iterator[psycopg.Connection]:
    """The administrator's connection; nothing of it stays."""
    with psycopg.connect(database.admin_url or "") as connection:
        yield connection
        connection.rollback()


@pytest.mark.usefixtures("tenant_name")
def test_tables__are_each_in_one_class(admin: psycopg.Connection) -> None:
    assert not DISTRIBUTED & LOCAL
    assert {name for (name,) in admin.execute(_TABLES)} == DISTRIBUTED | LOCAL


@pytest.mark.usefixtures("tenant_name")
def test_references__are_ones_that_citus_takes(admin: psycopg.Connection) -> None:
    """Between tables that are placed together, with the tenant in the same place, and no SET NULL or ON UPDATE."""
    references = admin.execute(_REFERENCES).fetchall()
    assert len(references) > 15
    for source, target, on_delete, on_update, columns, target_columns in references:
        assert source in DISTRIBUTED, f"{source} is local and refers to {target}"
        assert target in DISTRIBUTED, f"{source} refers to {target}, which is local"
        assert on_delete in "acr", f"{source}: ON DELETE sets the tenant too"
        assert on_update == "a"
        assert columns.index("tenant_id") == target_columns.index("tenant_id"), (source, target)


@pytest.mark.usefixtures("tenant_name")
def test_unique_keys__begin_with_the_tenant(admin: psycopg.Connection) -> None:
    for table, columns in admin.execute(_UNIQUE):
        assert columns[0] == "tenant_id" or table == VERSION, table


@pytest.mark.usefixtures("tenant_name")
def test_columns__have_no_sequence_over_all_tenants(admin: psycopg.Connection) -> None:
    """No column of a table has a sequence over all tenants."""
    assert admin.execute(_SEQUENCES).fetchall() == []
    assert {table for (table,) in admin.execute(_WITH_TENANT)} == (DISTRIBUTED | LOCAL) - {VERSION}


@pytest.mark.usefixtures("tenant_name")
def test_functions__of_the_plan_are_all_but_those_of_the_queue(admin: psycopg.Connection) -> None:
    policies = " ".join(
        text
        for (text,) in admin.execute(
            "SELECT concat(pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)) FROM pg_policy"
        )
    )
    assert {f"{name}()" for name in re.findall(r"kosmos\.\w+(?=\()", policies)} == set(FUNCTIONS_OF_POLICIES)
    for signature in (*FUNCTIONS_OF_POLICIES, *NODE_FUNCTIONS):
        row = admin.execute(
            "SELECT %s::regprocedure::text, prosecdef FROM pg_proc WHERE oid = %s::regprocedure", [signature, signature]
        ).fetchone()
        assert row == (signature, False)
    planned = {
        re.sub(r"kosmos\.(\w+)\(.*", r"\1", signature) for signature in (*FUNCTIONS_OF_POLICIES, *NODE_FUNCTIONS)
    }
    assert load_functions().keys() - planned == {"claim_jobs", "new_job_id"}


@pytest.mark.usefixtures("tenant_name")
def test_plan__puts_tables_after_those_they_refer_to(admin: psycopg.Connection) -> None:
    steps = render(admin, plan(admin))
    place = {
        table: number
        for number, step in enumerate(steps)
        if "create_distributed_table" in step
        for table in re.findall(r"'kosmos\.(\w+)', 'tenant_id'", step)
    }
    assert place.keys() == DISTRIBUTED
    assert min(place, key=lambda table: place[table]) == ANCHOR
    taken_off = {
        name: number for number, step in enumerate(steps) for name in re.findall(r'DROP CONSTRAINT "(\w+)"', step)
    }
    put_back = {
        name: number for number, step in enumerate(steps) for name in re.findall(r'ADD CONSTRAINT "(\w+)"', step)
    }
    assert set(taken_off) == set(put_back) == {"tenants_live_space_fkey"}
    assert max(taken_off.values()) < min(place.values())
    assert min(put_back.values()) > max(place.values())
    for source, target, *_ in admin.execute(_REFERENCES):
        assert place[target] < place[source] or (source, target) == ("tenants", "embedding_spaces")


# The administrator rolls back before the engine closes: work of the engine would wait for its locks.
def test_plan__can_be_run_and_leaves_the_references_as_they_were(engine: Engine, admin: psycopg.Connection) -> None:
    engine.tenant("acme").ingest(SourceDocument(source="a", data=b"Some words."))
    engine.tenant("acme").jobs.enqueue(SourceDocument(source="b", data=b"waits"))
    definitions = "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'f' ORDER BY 1, 2"
    before = admin.execute(definitions).fetchall()
    admin.execute(_CITUS)
    for step in plan(admin):
        admin.execute(step)
    assert admin.execute(definitions).fetchall() == before
    calls = [call for (call,) in admin.execute("SELECT call FROM public.calls ORDER BY number")]
    assert calls[: len(FUNCTIONS_OF_POLICIES)] == list(FUNCTIONS_OF_POLICIES)
    assert calls[len(FUNCTIONS_OF_POLICIES)] == "kosmos.tenants by tenant_id with none"
    assert not [call for call in calls if call.startswith(("kosmos.jobs ", "kosmos.sync_runs "))]
    truncated = len(DISTRIBUTED)
    assert set(calls[-truncated:]) == {f"kosmos.{table} truncated" for table in DISTRIBUTED}
    assert calls[-truncated - len(NODE_FUNCTIONS) : -truncated] == list(NODE_FUNCTIONS)


@pytest.mark.usefixtures("tenant_name")
def test_plan__refuses_a_schema_without_the_key_that_it_would_put_back(admin: psycopg.Connection) -> None:
    admin.execute("ALTER TABLE kosmos.tenants DROP CONSTRAINT tenants_live_space_fkey")
    with pytest.raises(DatabaseNotReady, match="foreign key tenants_live_space_fkey is missing"):
        plan(admin)
    admin.rollback()


@pytest.mark.usefixtures("tenant_name")
def test_distribute__says_what_is_missing(database: DatabaseSettings, empty_database: DatabaseSettings) -> None:
    with pytest.raises(DatabaseNotReady, match="the extension `citus` is missing from this database"):
        distribute_tables(database)
    with pytest.raises(DatabaseNotReady, match="no kosmos schema yet"):
        preview(empty_database.admin_url or "")


@pytest.mark.usefixtures("tenant_name")
def test_migrate__prints_the_plan_and_refuses_what_makes_no_sense(
    database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch, database)

    def run(*arguments: str) -> tuple[int, str, str]:
        result = run_command("migrate", *arguments)
        return result.exit_code, result.stdout, result.stderr

    code, out, _ = run("--distribute", "--dry-run")
    assert code == 0
    assert "SELECT create_distributed_table('kosmos.documents', 'tenant_id', colocate_with => 'kosmos.tenants');" in out
    assert len(json.loads(run("--distribute", "--dry-run", "--json")[1])["statements"]) == len(out.splitlines())
    code, out, _ = run("--distribute", "--dry-run", "--shards", "128")
    assert out.count("shard_count") == 1
    assert "'kosmos.tenants', 'tenant_id', colocate_with => 'none', shard_count => 128);" in out
    assert "citus" in run("--distribute")[2]
    assert "need --distribute" in run("--dry-run")[2]
    assert "need --distribute" in run("--shards", "128")[2]
    assert "needs the newest revision, not base" in run("base", "--distribute")[2]


@pytest.mark.usefixtures("tenant_name")
def test_statements__can_each_be_explained(database: DatabaseSettings) -> None:
    """What tests/citus asks of a distributed server is asked here of a plain one, so that it can be asked."""
    with psycopg.connect(database.worker_url or "") as worker, psycopg.connect(database.url) as reader:
        for name in of_distributed_tables():
            text = written_out(worker, name, tenant("acme").id)
            try:
                with worker.transaction(force_rollback=True):
                    worker.execute(f"EXPLAIN {text}")
            except psycopg.errors.InsufficientPrivilege:
                with reader.transaction(force_rollback=True):
                    reader.execute(f"EXPLAIN {text}")
