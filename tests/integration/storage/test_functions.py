"""The functions of the database: their files are what a migrated database has."""

from importlib.resources import files

import psycopg
import pytest

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import StatementFailed
from kosmos_rag.storage.functions import load_functions, normalize, read_functions
from kosmos_rag.storage.migrate import REVISION
from kosmos_rag.storage.setup import set_up
from kosmos_rag.storage.sql import statement

pytestmark = pytest.mark.changes_catalogue


def _definitions(database: DatabaseSettings) -> dict[str, str]:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute(statement("set_catalog_search_path"))
        return {function.name: function.definition or "" for function in read_functions(connection)}


def _run(database: DatabaseSettings, command: str) -> None:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute(command.encode())


def test_migrated_database__has_the_functions_of_the_files(database: DatabaseSettings) -> None:
    defined = {name: normalize(text) for name, text in load_functions().items()}
    assert {name: normalize(text) for name, text in _definitions(database).items()} == defined
    assert len(defined) == len(list((files("kosmos_rag.storage.sql") / "functions").iterdir()))


CHANGES = {
    "body": (
        (
            "CREATE OR REPLACE FUNCTION kosmos.current_tenant() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE "
            "AS $$ SELECT gen_random_uuid() $$"
        ),
        {"current_tenant"},
    ),
    "attribute": ("ALTER FUNCTION kosmos.hash_fields(jsonb) VOLATILE", {"hash_fields"}),
    "setting": (
        "ALTER FUNCTION kosmos.claim_jobs(integer, text[], text, double precision) RESET plan_cache_mode",
        {"claim_jobs"},
    ),
    "definer": ("ALTER FUNCTION kosmos.set_vector_search(integer, integer) SECURITY DEFINER", {"set_vector_search"}),
    "gone": ("DROP FUNCTION kosmos.visible_principals(text[])", {"visible_principals"}),
    "result": (
        (
            "DROP FUNCTION kosmos.new_job_id(); "
            "CREATE FUNCTION kosmos.new_job_id() RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$"
        ),
        {"new_job_id"},
    ),
    "names of parameters": (
        (
            "DROP FUNCTION kosmos.hash_fields(jsonb); "
            "CREATE FUNCTION kosmos.hash_fields(value jsonb) RETURNS bigint[] LANGUAGE sql AS 'SELECT NULL::bigint[]'"
        ),
        {"hash_fields"},
    ),
    "other parameters": (
        "CREATE FUNCTION kosmos.current_tenant(hint text) RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'",
        {"current_tenant"},
    ),
    "older function": (
        "CREATE FUNCTION kosmos.of_an_older_version() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        {"of_an_older_version"},
    ),
    "aggregate": (
        "CREATE AGGREGATE kosmos.total(integer) (SFUNC = int4pl, STYPE = integer)",
        {"total"},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_migrate__brings_a_function_back_to_its_file(change: str, database: DatabaseSettings) -> None:
    before = _definitions(database)
    command, changed = CHANGES[change]
    _run(database, f"SET ROLE kosmos_owner; {command}")
    result = set_up(database)
    assert (result.before, result.after, set(result.functions)) == (REVISION, REVISION, changed)
    assert _definitions(database) == before
    assert set_up(database).functions == ()


def test_migrate__keeps_the_constant_of_retention(database: DatabaseSettings) -> None:
    _run(
        database,
        "SET ROLE kosmos_owner; CREATE OR REPLACE FUNCTION kosmos.audit_expired_before() RETURNS timestamptz "
        "LANGUAGE sql STABLE PARALLEL SAFE RETURN '2026-01-01'::timestamptz",
    )
    assert set_up(database).functions == ()
    assert "2026-01-01" in _definitions(database)["audit_expired_before"]


def test_migrate__that_cannot_drop_a_function_changes_none(database: DatabaseSettings) -> None:
    _run(
        database,
        "SET ROLE kosmos_owner; ALTER FUNCTION kosmos.hash_fields(jsonb) VOLATILE;"
        "CREATE FUNCTION kosmos.of_a_view() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    )
    _run(database, "CREATE VIEW public.one AS SELECT kosmos.of_a_view()")
    before = _definitions(database)
    with pytest.raises(StatementFailed, match="other objects depend on it"):
        set_up(database)
    assert _definitions(database) == before
