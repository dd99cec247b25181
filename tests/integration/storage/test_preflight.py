"""The check before serving refuses every catalogue that would not keep tenants apart."""

from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, DatabaseNotReady, DatabaseUnavailable
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.preflight import ServerState, inspect
from kosmos_rag.storage.provision import APP
from kosmos_rag.storage.setup import set_up

pytestmark = pytest.mark.changes_catalogue

POLICY = "tenant_id = kosmos.current_tenant()"
READ = (
    f"{POLICY} AND ('everyone' = ANY (acl) AND current_setting('kosmos.everyone', true) = 'on'"
    " OR acl && kosmos.current_principals())"
)

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
    "trigger": (
        (
            "CREATE FUNCTION public.kosmos_open() RETURNS trigger LANGUAGE plpgsql "
            "AS $$BEGIN NEW.acl := '{everyone}'; RETURN NEW; END$$; CREATE TRIGGER opening BEFORE INSERT "
            "ON kosmos.chunks FOR EACH ROW EXECUTE FUNCTION public.kosmos_open()"
        ),
        "trigger opening on kosmos.chunks is not of the migrations",
    ),
    "rule": (
        "CREATE RULE forget AS ON INSERT TO kosmos.erasures DO INSTEAD NOTHING",
        "rule forget on kosmos.erasures is not of the migrations",
    ),
    "parent outside the schema": (
        (
            "CREATE TABLE public.every_chunk (LIKE kosmos.chunks); ALTER TABLE kosmos.chunks INHERIT "
            "public.every_chunk; GRANT SELECT ON public.every_chunk TO kosmos_app"
        ),
        "table public.every_chunk is a parent or a child of kosmos.chunks",
    ),
    "child outside the schema": (
        "CREATE TABLE public.more_feedback () INHERITS (kosmos.feedback); GRANT ALL ON public.more_feedback TO PUBLIC",
        "table public.more_feedback is a parent or a child of kosmos.feedback",
    ),
    "schema behind": ("DELETE FROM kosmos.alembic_version", "run `kosmos-rag migrate`"),
    "schema from before the baseline": (
        "UPDATE kosmos.alembic_version SET version_num = '0024'",
        "revision 0024 is older than release 0.1.0 and cannot be migrated; keep a backup, create a new database",
    ),
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
        "role kosmos_app has SELECT on kosmos.audit_events, which no migration grants",
    ),
    "schema ahead, tenant of anybody": (
        (
            "UPDATE kosmos.alembic_version SET version_num = '9999'; "
            "CREATE OR REPLACE FUNCTION kosmos.current_tenant() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE "
            "AS $$ SELECT gen_random_uuid() $$"
        ),
        "function kosmos.current_tenant() differs from its file; run `kosmos-rag migrate`",
    ),
    # A policy that holds the right text, and lets other rows through.
    "text of the tenant in a comparison": (
        f"ALTER POLICY app_read ON kosmos.chunks USING ($${READ}$$ <> section[1])",
        "policy app_read on kosmos.chunks is not as migrated",
    ),
    "tenant tested for being known": (
        f"ALTER POLICY app_read ON kosmos.tenants USING (({POLICY}) IS NOT NULL)",
        "policy app_read on kosmos.tenants is not as migrated",
    ),
    "tenant negated": (
        f"ALTER POLICY app_read ON kosmos.tenants USING (NOT ({POLICY}))",
        "policy app_read on kosmos.tenants is not as migrated",
    ),
    "tenant or any, by CASE": (
        f"ALTER POLICY app_read ON kosmos.chunks USING (CASE WHEN tokens > 0 THEN true ELSE {READ} END)",
        "policy app_read on kosmos.chunks is not as migrated",
    ),
    "acl contained in nothing": (
        f"ALTER POLICY app_read ON kosmos.chunks USING ({POLICY} AND (acl && kosmos.current_principals()) IS NOT NULL)",
        "policy app_read on kosmos.chunks is not as migrated",
    ),
    "rows for everyone without the setting": (
        (
            "ALTER POLICY app_read ON kosmos.chunks "
            f"USING ({POLICY} AND ('everyone' = ANY (acl) OR acl && kosmos.current_principals()))"
        ),
        "policy app_read on kosmos.chunks is not as migrated",
    ),
    "check of the queue's policy": (
        "ALTER POLICY worker_queue ON kosmos.jobs WITH CHECK (state <> 'done')",
        "policy worker_queue on kosmos.jobs is not as migrated",
    ),
    "policy of a partition": (
        f"CREATE POLICY app_read ON kosmos.audit_events_default FOR SELECT TO kosmos_app USING ({POLICY})",
        "policy app_read on kosmos.audit_events_default is not as migrated",
    ),
    "policy of another role": (
        "ALTER POLICY app_read ON kosmos.chunks TO kosmos_app, kosmos_worker",
        "policy app_read on kosmos.chunks is not as migrated",
    ),
    # Owners.
    "table of the app role": (
        (
            "GRANT CREATE ON SCHEMA kosmos TO kosmos_app; ALTER TABLE kosmos.chunks OWNER TO kosmos_app; "
            "REVOKE CREATE ON SCHEMA kosmos FROM kosmos_app"
        ),
        "table kosmos.chunks belongs to kosmos_app",
    ),
    "table of a superuser": ("ALTER TABLE kosmos.documents OWNER TO CURRENT_USER", "table kosmos.documents belongs to"),
    "function of the app role": (
        (
            "GRANT CREATE ON SCHEMA kosmos TO kosmos_app; ALTER FUNCTION kosmos.current_tenant() OWNER TO kosmos_app; "
            "REVOKE CREATE ON SCHEMA kosmos FROM kosmos_app"
        ),
        "function kosmos.current_tenant belongs to kosmos_app",
    ),
    "schema of the app role": (
        "ALTER SCHEMA kosmos OWNER TO kosmos_app",
        "role kosmos_app may create objects in the schema kosmos",
    ),
    # Privileges.
    "app creates in the schema": (
        "GRANT CREATE ON SCHEMA kosmos TO kosmos_app",
        "role kosmos_app may create objects in the schema kosmos",
    ),
    "everyone creates in the schema": (
        "GRANT CREATE ON SCHEMA kosmos TO PUBLIC",
        "role kosmos_app may create objects in the schema kosmos",
    ),
    "app inserts": (
        "GRANT INSERT ON kosmos.chunks TO kosmos_app",
        "role kosmos_app has INSERT on kosmos.chunks, which no migration grants",
    ),
    "app updates a column": (
        "GRANT UPDATE (acl) ON kosmos.documents TO kosmos_app",
        "role kosmos_app has UPDATE on kosmos.documents",
    ),
    "app deletes from the queue": (
        "GRANT DELETE ON kosmos.jobs TO PUBLIC",
        "role kosmos_app has DELETE on kosmos.jobs",
    ),
    "app truncates": ("GRANT TRUNCATE ON kosmos.chunks TO kosmos_app", "role kosmos_app has TRUNCATE on kosmos.chunks"),
    "app reads the samples": (
        "GRANT SELECT ON kosmos.monitor_samples TO kosmos_app",
        "role kosmos_app has SELECT on kosmos.monitor_samples",
    ),
    "app changes the revision": (
        "GRANT UPDATE ON kosmos.alembic_version TO kosmos_app",
        "role kosmos_app has UPDATE on kosmos.alembic_version",
    ),
    "worker changes the log": (
        "GRANT UPDATE ON kosmos.audit_events TO kosmos_worker",
        "role kosmos_worker has UPDATE on kosmos.audit_events",
    ),
    "worker truncates": (
        "GRANT TRUNCATE, TRIGGER ON kosmos.chunks TO kosmos_worker",
        "role kosmos_worker has TRIGGER, TRUNCATE on kosmos.chunks",
    ),
    "app reads a partition of the log": (
        "GRANT SELECT ON kosmos.audit_events_default TO kosmos_app",
        "role kosmos_app has SELECT on kosmos.audit_events_default",
    ),
    # Functions.
    "principals of anybody": (
        (
            "CREATE OR REPLACE FUNCTION kosmos.current_principals() RETURNS text[] LANGUAGE sql STABLE PARALLEL SAFE "
            "AS $$ SELECT ARRAY['everyone', 'role:Manager'] $$"
        ),
        "function kosmos.current_principals() differs from its file",
    ),
    "context that adds a principal": (
        (
            "CREATE OR REPLACE FUNCTION kosmos.set_tenant_context(tenant uuid, principals text[]) RETURNS void "
            "LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ BEGIN "
            "EXECUTE format('SET LOCAL kosmos.tenant = %L', tenant); "
            "EXECUTE format('SET LOCAL kosmos.principals = %L', principals || 'role:Manager'); END $$"
        ),
        "function kosmos.set_tenant_context(uuid, text[]) differs from its file",
    ),
    "context without its search path": (
        "ALTER FUNCTION kosmos.set_tenant_context(uuid, text[]) RESET search_path",
        "function kosmos.set_tenant_context(uuid, text[]) differs from its file",
    ),
    "leakproof filter": (
        "ALTER FUNCTION kosmos.matches_filter(kosmos.documents, text, jsonb, text[], text[]) LEAKPROOF",
        "function kosmos.matches_filter(kosmos.documents, text, jsonb, text[], text[]) differs from its file",
    ),
    "expiry that is no constant": (
        (
            "CREATE OR REPLACE FUNCTION kosmos.audit_expired_before() RETURNS timestamptz LANGUAGE sql STABLE "
            "PARALLEL SAFE RETURN now()"
        ),
        "function kosmos.audit_expired_before() differs from its file",
    ),
    "definer in the schema": (
        "ALTER FUNCTION kosmos.claim_jobs(integer, text[], text, double precision) SECURITY DEFINER",
        "function kosmos.claim_jobs(integer, text[], text, double precision) is SECURITY DEFINER",
    ),
    "function added": (
        "CREATE FUNCTION kosmos.current_tenant(hint text) RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'",
        "function kosmos.current_tenant(text) has no file in this version",
    ),
    "function gone": (
        "DROP FUNCTION kosmos.visible_principals(text[])",
        "function kosmos.visible_principals is missing",
    ),
    "definer outside the schema": (
        (
            "CREATE FUNCTION public.leak() RETURNS SETOF kosmos.chunks LANGUAGE sql SECURITY DEFINER "
            "AS 'SELECT * FROM kosmos.chunks'"
        ),
        "function public.leak runs with the rights of",
    ),
    "view outside the schema": (
        "CREATE VIEW public.leak AS SELECT * FROM kosmos.chunks; GRANT SELECT ON public.leak TO kosmos_app",
        "view public.leak shows the rows of every tenant",
    ),
    # Settings, and objects that no migration makes.
    "context as a setting of the role": (
        "ALTER ROLE kosmos_app IN DATABASE {database} SET kosmos.everyone = 'on'",
        "role kosmos_app sets kosmos.everyone, which changes whose rows a session reads; ALTER ROLE … RESET it",
    ),
    "tenant as a setting of the database": (
        "ALTER DATABASE {database} SET kosmos.tenant = '00000000-0000-0000-0000-000000000001'",
        "sets kosmos.tenant, which changes whose rows a session reads; ALTER DATABASE … RESET it",
    ),
    "checks of rows off": (
        "ALTER ROLE kosmos_worker IN DATABASE {database} SET row_security = off",
        "role kosmos_worker sets row_security",
    ),
    "triggers of a replica": (
        "ALTER ROLE kosmos_worker IN DATABASE {database} SET session_replication_role = replica",
        "role kosmos_worker sets session_replication_role",
    ),
    "functions before those of the server": (
        "ALTER ROLE kosmos_app IN DATABASE {database} SET search_path = public, pg_catalog",
        "role kosmos_app sets search_path",
    ),
    "operator in the schema": (
        "CREATE OPERATOR kosmos.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = uuid_ne)",
        "operator kosmos.=(uuid,uuid) is not of the migrations; drop it",
    ),
    "readers that may be missing": (
        "ALTER TABLE kosmos.documents ALTER COLUMN acl DROP NOT NULL",
        "table kosmos.documents has rows without a tenant or readers",
    ),
    "member of the role of backups": (
        "CREATE ROLE {database}_dumper; GRANT kosmos_backup TO {database}_dumper",
        "is a member of kosmos_backup, which reads all tenants",
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


def _inspect_mutant(database: DatabaseSettings, command: str, login: str = APP) -> ServerState:
    """Run statements, inspect as a login, and roll both back."""
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute(command.encode())
        connection.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(login)))
        state = inspect(connection, APP)
        connection.rollback()
    return state


@pytest.mark.parametrize("mutant", MUTANTS)
def test_preflight__refuses(mutant: str, module_database: DatabaseSettings) -> None:
    """Each change of policies, owners, privileges, functions, views, triggers, rules and inheritance is refused by
    name.
    """
    command, finding = MUTANTS[mutant]
    name = str(conninfo_to_dict(module_database.url)["dbname"])
    problems = _inspect_mutant(module_database, command.replace("{database}", name)).problems
    assert any(finding in problem for problem in problems), problems


def test_preflight__leaves_no_mutant_behind(module_database: DatabaseSettings) -> None:
    state = _inspect_mutant(module_database, "SELECT 1")
    assert (state.problems, state.warnings) == ((), ())


def test_engine__asks_nothing_of_a_database_that_was_changed(settings: Settings, database: DatabaseSettings) -> None:
    _admin(database, MUTANTS["rls off"][0])
    with pytest.raises(DatabaseNotReady, match="chunks has row-level security off"):
        _ask(settings)


WARNINGS = {
    "unlogged": (
        "ALTER TABLE kosmos.postings SET UNLOGGED",
        "table kosmos.postings is UNLOGGED, and a crash of the server empties it",
    ),
    "publication": (
        "CREATE PUBLICATION copies FOR TABLE kosmos.chunks",
        "publication copies copies rows of every tenant to its subscribers",
    ),
    "event trigger": (
        (
            "CREATE FUNCTION public.kosmos_event() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'; "
            "CREATE EVENT TRIGGER watching ON ddl_command_end EXECUTE FUNCTION public.kosmos_event()"
        ),
        "event trigger watching of postgres runs with every migration",
    ),
    "column": (
        "ALTER TABLE kosmos.documents ADD COLUMN owner text DEFAULT 'anybody'",
        "column owner of kosmos.documents is not of the migrations",
    ),
    "copy": (
        "CREATE TABLE public.copies AS SELECT * FROM kosmos.chunks; GRANT SELECT ON public.copies TO kosmos_app",
        "table public.copies has tenants and readers in columns, and no policy binds who may read it",
    ),
}


@pytest.mark.parametrize("mutant", WARNINGS)
def test_preflight__warns(mutant: str, module_database: DatabaseSettings) -> None:
    command, finding = WARNINGS[mutant]
    state = _inspect_mutant(module_database, command)
    assert state.problems == ()
    assert any(finding in warning for warning in state.warnings), state.warnings


def test_preflight__does_not_warn_of_columns_that_a_newer_schema_adds(module_database: DatabaseSettings) -> None:
    newer = "UPDATE kosmos.alembic_version SET version_num = '9999'; ALTER TABLE kosmos.documents ADD COLUMN owner text"
    assert _inspect_mutant(module_database, newer).warnings == ()


def test_warnings__are_logged_and_shown_by_doctor(
    settings: Settings, database: DatabaseSettings, caplog: pytest.LogCaptureFixture
) -> None:
    command, finding = WARNINGS["unlogged"]
    _admin(database, command)
    _ask(settings)
    assert finding in caplog.text
    assert any(check.ok and finding in check.detail for check in diagnose(settings))


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


# What a login may be given beside its membership in kosmos_app.
LOGIN_MUTANTS = {
    "member of the worker": ("GRANT kosmos_worker TO {login}", "kosmos_worker, which reads all rows of a tenant"),
    "member of the owner": ("GRANT kosmos_owner TO {login}", "kosmos_owner, which may drop the policies"),
    "may become the owner": (
        "GRANT kosmos_owner TO {login} WITH INHERIT FALSE, SET TRUE",
        "kosmos_owner, which may drop the policies",
    ),
    "member of a member of the owner": (
        "GRANT kosmos_owner TO {group}; GRANT {group} TO {login} WITH INHERIT FALSE",
        "kosmos_owner, which may drop the policies",
    ),
    "may become a superuser": (
        "ALTER ROLE {group} SUPERUSER; GRANT {group} TO {login}",
        "{group}, which has SUPERUSER",
    ),
    "may become one with BYPASSRLS": (
        "ALTER ROLE {group} BYPASSRLS; GRANT {group} TO {login}",
        "is a member of {group}, which has BYPASSRLS",
    ),
    "may become one with CREATEROLE": (
        "ALTER ROLE {group} CREATEROLE; GRANT {group} TO {login}",
        "is a member of {group}, which has CREATEROLE",
    ),
    "BYPASSRLS": ("ALTER ROLE {login} BYPASSRLS", "role {login} has BYPASSRLS"),
    "CREATEROLE": ("ALTER ROLE {login} CREATEROLE", "role {login} has CREATEROLE"),
    "REPLICATION": ("ALTER ROLE {login} REPLICATION", "role {login} has REPLICATION"),
    "reads all data": ("GRANT pg_read_all_data TO {login}", "is a member of pg_read_all_data"),
    "another group": ("GRANT {group} TO {login}", "role {login} is a member of {group};"),
    "a grant of its own": ("GRANT SELECT ON kosmos.feedback TO {login}", "role {login} has SELECT on kosmos.feedback"),
    "creates in the schema": (
        "GRANT CREATE ON SCHEMA kosmos TO {login}",
        "role {login} may create objects in the schema kosmos",
    ),
    "owner of a table": (
        (
            "GRANT CREATE ON SCHEMA kosmos TO {login}; ALTER TABLE kosmos.chunks OWNER TO {login}; "
            "REVOKE CREATE ON SCHEMA kosmos FROM {login}"
        ),
        "table kosmos.chunks belongs to {login}",
    ),
}


@pytest.mark.parametrize("mutant", ["as it is", *LOGIN_MUTANTS])
def test_preflight__refuses_a_login_with_too_many_rights(mutant: str, module_database: DatabaseSettings) -> None:
    """Each right of a login in addition to `kosmos_app`, by membership, SET ROLE or attribute, is refused by name."""
    names = {"login": "kosmos_test_login", "group": "kosmos_test_group"}
    roles = "CREATE ROLE {login} LOGIN IN ROLE kosmos_app; CREATE ROLE {group};"
    command, finding = LOGIN_MUTANTS.get(mutant, ("", ""))
    state = _inspect_mutant(module_database, f"{roles} {command}".format(**names), names["login"])
    if not command:
        assert state.problems == ()
    else:
        assert any(finding.format(**names) in problem for problem in state.problems), state.problems


def test_login__of_a_member_of_the_app_role_serves(settings: Settings, database: DatabaseSettings) -> None:
    """A migrated database with a login that is a member of only `kosmos_app` passes the check."""
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
        pytest.param(
            {"database": "kosmos_nowhere"},
            "does not exist; create it",
            marks=pytest.mark.direct_connection("the pooler tries until the connection's time is over"),
        ),
    ],
)
def test_absent_server__is_in_the_message(
    change: dict[str, str], finding: str, settings: Settings, database: DatabaseSettings
) -> None:
    parts = conninfo_to_dict(database.url)
    name = change.get("database", parts["dbname"])
    url = f"postgresql://kosmos_app:x@/{name}?host={parts['host']}&port={change.get('port', parts.get('port', 5432))}"
    unreachable = database.model_copy(update={"url": url})
    with pytest.raises(DatabaseUnavailable, match=finding):
        _ask(settings.model_copy(update={"database": unreachable}))


@pytest.mark.direct_connection("the pooler has the server's password of each role, and compares none")
def test_wrong_password__is_in_the_message(settings: Settings, database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        row = connection.execute("SHOW hba_file").fetchone()
        assert row is not None
        from pathlib import Path

        rules = Path(row[0])
        if not rules.is_file():
            pytest.skip("the server's pg_hba.conf is not on this machine")
        before = rules.read_text()
        try:
            rules.write_text("local all kosmos_app scram-sha-256\n" + before)
            connection.execute("SELECT pg_reload_conf()")
            wrong = database.url.replace("kosmos-test", "wrong")
            assert wrong != database.url
            with pytest.raises(
                DatabaseUnavailable, match=r"password authentication failed.*check user and password of database\.url"
            ):
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


@pytest.mark.direct_connection("the pooler waits for the server, and then says so in its own words")
def test_stopped_server__is_in_the_message_of_an_open_engine(
    settings: Settings, database: DatabaseSettings, server: Any
) -> None:
    impatient = database.model_copy(update={"connect_timeout_s": 1.0})
    with Engine(settings.model_copy(update={"database": impatient}), embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").search("x")
        name = conninfo_to_dict(database.url)["dbname"]
        with psycopg.connect(server.admin, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
            # The milliseconds to wait: a backend may take a statement before it ends.
            end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"
            connection.execute(end, (name,))
        with pytest.raises(DatabaseUnavailable, match="not currently accepting connections"):
            engine.tenant("acme").search("x")
