"""The check before serving refuses every catalogue that would not keep tenants apart."""

from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, DatabaseNotReady, DatabaseUnavailable
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.setup import set_up

POLICY = "tenant_id = kosmos.current_tenant()"
READ = f"{POLICY} AND acl && kosmos.current_principals()"

# What an accident or a careless change could do to the catalogue, and what the preflight says of it.
MUTANTS = {
    "rls off": ("ALTER TABLE kosmos.chunks DISABLE ROW LEVEL SECURITY", "chunks has row-level security off"),
    "not forced": (
        "ALTER TABLE kosmos.embeddings NO FORCE ROW LEVEL SECURITY",
        "embeddings has row-level security off",
    ),
    "read policy gone": ("DROP POLICY app_read ON kosmos.documents", "app_read on kosmos.documents is missing"),
    "write policy gone": ("DROP POLICY worker_all ON kosmos.chunks", "worker_all on kosmos.chunks is missing"),
    "read policy true": ("ALTER POLICY app_read ON kosmos.chunks USING (true)", "app_read on kosmos.chunks is not"),
    "read policy without acl": (
        f"ALTER POLICY app_read ON kosmos.chunks USING ({POLICY})",
        "app_read on kosmos.chunks",
    ),
    "read policy with or": (f"ALTER POLICY app_read ON kosmos.chunks USING (({READ}) OR tokens > 0)", "app_read on"),
    "write policy true": (
        f"ALTER POLICY worker_all ON kosmos.lexemes USING (true) WITH CHECK ({POLICY})",
        "worker_all",
    ),
    "write check true": (f"ALTER POLICY worker_all ON kosmos.lexemes USING ({POLICY}) WITH CHECK (true)", "worker_all"),
    "policy for all": ("ALTER POLICY app_read ON kosmos.tenants TO PUBLIC", "app_read on kosmos.tenants is not"),
    "second policy": (
        "CREATE POLICY extra ON kosmos.chunks FOR SELECT TO kosmos_app USING (tokens > 0)",
        "policy extra on kosmos.chunks is not as migrated",
    ),
    "restrictive policy": (
        f"CREATE POLICY extra ON kosmos.chunks AS RESTRICTIVE FOR SELECT TO kosmos_app USING ({POLICY})",
        "policy extra on kosmos.chunks is not as migrated",
    ),
    "new table": ("CREATE TABLE kosmos.extra (tenant_id uuid)", "kosmos.extra has row-level security off"),
    "materialised view": ("CREATE MATERIALIZED VIEW kosmos.extra AS SELECT 1", "view kosmos.extra shows the rows"),
    "owner's view": ("CREATE VIEW kosmos.extra AS SELECT * FROM kosmos.chunks", "view kosmos.extra shows the rows"),
    "schema behind": ("UPDATE kosmos.alembic_version SET version_num = '0000'", "run `kosmos-rag migrate`"),
    "schema too far ahead": (
        "UPDATE kosmos.alembic_version SET version_num = '9999'; COMMENT ON TABLE kosmos.alembic_version IS '9998'",
        "needs code of 9998 or newer",
    ),
    "schema ahead, rls off": (
        "UPDATE kosmos.alembic_version SET version_num = '9999'; ALTER TABLE kosmos.chunks DISABLE ROW LEVEL SECURITY",
        "chunks has row-level security off",
    ),
    "schema ahead, log readable": (
        "UPDATE kosmos.alembic_version SET version_num = '9999'; GRANT SELECT ON kosmos.audit_events TO kosmos_app",
        "role kosmos_app may do more with the log kosmos.audit_events than",
    ),
    "no extension": ("DROP EXTENSION vector CASCADE", "extension `vector` is missing"),
    "old extension": (
        "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'",
        "pgvector 0.7.4 is too old",
    ),
}


def _admin(database: DatabaseSettings, command: str) -> None:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute(command.encode())


def _ask(settings: Settings) -> None:
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").search("anything")


def test_preflight__accepts_a_migrated_database(settings: Settings) -> None:
    _ask(settings)


def test_preflight__accepts_a_newer_schema_that_only_adds(settings: Settings, database: DatabaseSettings) -> None:
    _admin(database, "UPDATE kosmos.alembic_version SET version_num = '9999'")
    _admin(database, "CREATE TABLE kosmos.extra (tenant_id uuid)")
    _ask(settings)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_preflight__refuses(mutant: str, settings: Settings, database: DatabaseSettings) -> None:
    command, finding = MUTANTS[mutant]
    _admin(database, command)
    with pytest.raises(DatabaseNotReady) as refused:
        _ask(settings)
    assert any(finding in problem for problem in refused.value.problems), refused.value.problems


def test_preflight__refuses_an_empty_database(settings: Settings, empty_database: DatabaseSettings) -> None:
    with pytest.raises(DatabaseNotReady, match="run `kosmos-rag migrate`"):
        _ask(settings.model_copy(update={"database": empty_database}))


def test_preflight__refuses_a_superuser(settings: Settings, database: DatabaseSettings) -> None:
    unsafe = database.model_copy(update={"url": database.admin_url})
    with pytest.raises(DatabaseNotReady, match=r"is a superuser.*connect as kosmos_app"):
        _ask(settings.model_copy(update={"database": unsafe}))


def test_preflight__refuses_the_writing_role_for_reading(settings: Settings, database: DatabaseSettings) -> None:
    unsafe = database.model_copy(update={"url": database.worker_url})
    with pytest.raises(DatabaseNotReady, match="not a member of kosmos_app"):
        _ask(settings.model_copy(update={"database": unsafe}))


@pytest.mark.parametrize(
    ("grant", "finding"),
    [
        ("GRANT kosmos_app, kosmos_worker TO kosmos_test_login", "reads all rows of a tenant"),
        ("GRANT kosmos_app, kosmos_owner TO kosmos_test_login", "may drop the policies"),
        ("ALTER ROLE kosmos_test_login BYPASSRLS; GRANT kosmos_app TO kosmos_test_login", "has BYPASSRLS"),
    ],
)
def test_preflight__refuses_a_login_with_too_many_rights(
    grant: str, finding: str, settings: Settings, database: DatabaseSettings
) -> None:
    _admin(database, "DROP ROLE IF EXISTS kosmos_test_login")
    _admin(database, "CREATE ROLE kosmos_test_login LOGIN PASSWORD 'kosmos-test'")
    try:
        _admin(database, grant)
        login = database.url.replace("kosmos_app", "kosmos_test_login")
        with pytest.raises(DatabaseNotReady, match=finding):
            _ask(settings.model_copy(update={"database": database.model_copy(update={"url": login})}))
    finally:
        _admin(database, "DROP ROLE kosmos_test_login")


def test_a_login_that_is_a_member_of_the_app_role_serves(settings: Settings, database: DatabaseSettings) -> None:
    _admin(database, "DROP ROLE IF EXISTS kosmos_test_member")
    _admin(database, "CREATE ROLE kosmos_test_member LOGIN PASSWORD 'kosmos-test' IN ROLE kosmos_app")
    try:
        login = database.url.replace("kosmos_app", "kosmos_test_member")
        with Engine(
            settings.model_copy(update={"database": database.model_copy(update={"url": login})}),
            embedder=HashingEmbedder(),
        ) as engine:
            scope = engine.tenant("acme")
            scope.ingest([SourceDocument(source="a", data=b"Some words about churn.")])
            assert scope.search("churn").returned == 1
            assert engine.tenant("other").search("churn").returned == 0
    finally:
        _admin(database, "DROP ROLE kosmos_test_member")


def test_writing__without_a_worker_address_says_so(settings: Settings, database: DatabaseSettings) -> None:
    reading = settings.model_copy(update={"database": database.model_copy(update={"worker_url": None})})
    with (
        Engine(reading, embedder=HashingEmbedder()) as engine,
        pytest.raises(ConfigError, match="worker_url is not set"),
    ):
        engine.tenant("acme").ingest([SourceDocument(source="a", data=b"text")])


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"port": "1"}, "check that the server runs"),
        ({"database": "kosmos_nowhere"}, "does not exist; create it"),
    ],
)
def test_a_server_that_is_not_there_is_named(
    change: dict[str, str], finding: str, settings: Settings, database: DatabaseSettings
) -> None:
    parts = conninfo_to_dict(database.url)
    name = change.get("database", parts["dbname"])
    url = f"postgresql://kosmos_app:x@/{name}?host={parts['host']}&port={change.get('port', parts.get('port', 5432))}"
    gone = database.model_copy(update={"url": url})
    with pytest.raises(DatabaseUnavailable, match=finding):
        _ask(settings.model_copy(update={"database": gone}))


def test_a_wrong_password_is_named(settings: Settings, database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        found = connection.execute("SHOW hba_file").fetchone()
        assert found is not None
        from pathlib import Path

        rules = Path(found[0])
        if not rules.is_file():
            pytest.skip("the server's pg_hba.conf is not on this machine")
        before = rules.read_text()
        try:
            rules.write_text("local all kosmos_app scram-sha-256\n" + before)
            connection.execute("SELECT pg_reload_conf()")
            wrong = database.url.replace("kosmos-test", "wrong")
            assert wrong != database.url
            with pytest.raises(DatabaseUnavailable, match=r"password authentication failed.*check user and password"):
                _ask(settings.model_copy(update={"database": database.model_copy(update={"url": wrong})}))
            _ask(settings)
        finally:
            rules.write_text(before)
            connection.execute("SELECT pg_reload_conf()")


def test_preflight__after_migrating_down_to_nothing_says_what_to_do(
    settings: Settings, database: DatabaseSettings
) -> None:
    set_up(database, "base")
    with pytest.raises(DatabaseNotReady, match=r"is at revision None .*run `kosmos-rag migrate`"):
        _ask(settings)


def test_a_server_that_goes_away_under_an_open_engine_is_named(
    settings: Settings, database: DatabaseSettings, server: Any
) -> None:
    impatient = database.model_copy(update={"connect_timeout_s": 1.0})
    with Engine(settings.model_copy(update={"database": impatient}), embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").search("x")
        name = conninfo_to_dict(database.url)["dbname"]
        with psycopg.connect(server.admin, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        with pytest.raises(DatabaseUnavailable, match="not currently accepting connections"):
            engine.tenant("acme").search("x")
