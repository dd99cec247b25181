"""Create roles, database, extension and schema before the first revision.

Runs as an administrator, and is safe to repeat. Roles belong to the whole server, the rest to one database.
"""

from urllib.parse import unquote, urlsplit

import psycopg
from psycopg import sql

from kosmos_rag.core.errors import DatabaseNotReady
from kosmos_rag.storage.errors import connect_administrator
from kosmos_rag.storage.migrate import SCHEMA
from kosmos_rag.storage.sql import statement

OWNER, APP, WORKER, BACKUP = "kosmos_owner", "kosmos_app", "kosmos_worker", "kosmos_backup"

# Set on the role and not by the library, so that it holds for every client and behind a pooler: an index of one
# tenant's own is only matched by a plan made for that tenant. Not on the role that writes: it would have every check of
# a foreign key planned again, 25 µs instead of 5.
_APP_SETTING = ("plan_cache_mode", "force_custom_plan")


def create_database(admin_conninfo: str, name: str) -> None:
    """Create a database if it is missing.

    `admin_conninfo` names another database of the server.
    """
    with connect_administrator(admin_conninfo, autocommit=True) as connection:
        if connection.execute(statement("database_exists"), {"name": name}).fetchone() is None:
            try:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                return  # another process was faster


def _create_role(connection: psycopg.Connection, role: str, attributes: sql.SQL, password: str | None) -> None:
    if connection.execute(statement("role_exists"), {"name": role}).fetchone() is None:
        try:
            with connection.transaction():
                connection.execute(
                    sql.SQL("CREATE ROLE {} {} NOSUPERUSER NOBYPASSRLS").format(sql.Identifier(role), attributes)
                )
        except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            return  # another process was faster
        if password:
            connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(password)))


def _password(url: str | None, role: str) -> str | None:
    """Return the password of `role` in `url`.

    The result is None if `url` is of another role. Poolers such as Supabase's have the project after the name of a
    role: `kosmos_app.PROJECT`.
    """
    if url is None or "://" not in url:
        return None
    parts = urlsplit(url)
    user = (parts.username or "").partition(".")[0]
    return unquote(parts.password) if user == role and parts.password else None


def provision(admin_conninfo: str, *, app_url: str | None = None, worker_url: str | None = None) -> None:
    """Create missing roles, extension and schema; existing ones are unchanged.

    Args:
        app_url: URL of the app role; a new role gets its password.
        worker_url: URL of the worker role; a new role gets its password.

    Raises:
        DatabaseNotReady: the server has no pgvector, or the administrator lacks the rights.
    """
    with connect_administrator(admin_conninfo) as connection:
        # Concurrent provisioning of one database runs one after another.
        connection.execute(statement("lock_provisioning"))
        try:
            _create_role(connection, OWNER, sql.SQL("NOLOGIN"), None)
            _create_role(connection, APP, sql.SQL("LOGIN"), _password(app_url, APP))
            _create_role(connection, WORKER, sql.SQL("LOGIN"), _password(worker_url, WORKER))
            _create_role(connection, BACKUP, sql.SQL("LOGIN"), None)
            _create_extension(connection)
            _create_schema(connection)
            _prepare_citus(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            message = (
                f"the role of database.admin_url may not prepare the database ({error.diag.message_primary}); use a "
                "superuser, or the database's owner with CREATEROLE after a superuser ran CREATE EXTENSION vector. "
                f"Where the roles exist, GRANT {OWNER}, {APP}, {WORKER}, {BACKUP} TO it WITH ADMIN OPTION "
                "(docs/how-to/managed-postgresql.md)"
            )
            raise DatabaseNotReady([message]) from error


def describe_administrator(admin_conninfo: str) -> str:
    """Return who the administrator is, and whether it may migrate.

    Raises:
        DatabaseNotReady: the server does not have the roles yet.
        DatabaseUnavailable: no connection to the server.
    """
    with connect_administrator(admin_conninfo) as connection:
        missing = [
            role
            for role in (OWNER, APP, WORKER, BACKUP)
            if connection.execute(statement("role_exists"), {"name": role}).fetchone() is None
        ]
        if missing:
            raise DatabaseNotReady([f"the server has no role {', '.join(missing)}; run `kosmos-rag migrate`"])
        may_migrate = connection.execute(statement("can_set_role"), {"role": OWNER}).fetchone() == (True,)
        return f"{connection.info.user}, which may {'migrate and back up' if may_migrate else f'not act as {OWNER}'}"


def _create_extension(connection: psycopg.Connection) -> None:
    try:
        connection.execute(sql.SQL("CREATE EXTENSION IF NOT EXISTS vector"))
    except (psycopg.errors.UndefinedFile, psycopg.errors.FeatureNotSupported) as error:
        raise DatabaseNotReady(
            ["the server has no pgvector to create the extension `vector` from; install pgvector 0.8 or newer on it"]
        ) from error


def _create_schema(connection: psycopg.Connection) -> None:
    owner = sql.Identifier(OWNER)
    for role in (OWNER, BACKUP):  # to migrate as the one, and to back up as the other
        if connection.execute(statement("can_set_role"), {"role": role}).fetchone() != (True,):
            connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {} AUTHORIZATION {}").format(sql.Identifier(SCHEMA), owner))
    database = sql.Identifier(connection.info.dbname)
    name, value = _APP_SETTING
    connection.execute(
        sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {}").format(
            sql.Identifier(APP), database, sql.Identifier(name), sql.Literal(value)
        )
    )


def _prepare_citus(connection: psycopg.Connection) -> None:
    """Prepare a database of Citus for migrations.

    They create objects on every node.
    """
    row = connection.execute(statement("citus_nodes")).fetchone()
    assert row is not None
    if not row[0]:
        return
    # Functions of the migrations need it on every node, and only a superuser may make Citus know it.
    connection.execute(sql.SQL("CREATE EXTENSION IF NOT EXISTS plpgsql"))
    prepared = connection.execute(statement("prepared_for_citus")).fetchone()
    assert prepared is not None
    propagates, owner_logs_in, knows_roles = prepared
    if not propagates:
        # Tenant and reader are set by SET LOCAL, and policies on the shards read them.
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET citus.propagate_set_commands = {}").format(
                sql.Identifier(connection.info.dbname), sql.Literal("local")
            )
        )
    if not owner_logs_in:
        # The coordinator connects to workers as who runs the statement. Without a password nobody else comes in by it.
        connection.execute(sql.SQL("ALTER ROLE {} LOGIN").format(sql.Identifier(OWNER)))
    if not knows_roles:
        _register_roles(connection)


def _register_roles(connection: psycopg.Connection) -> None:
    """Make Citus know roles that are older than this database.

    It would create them on the nodes as the owner who creates a function, and the owner may not. Citus has no call for
    it: an object that the administrator gives to a role brings the role along.
    """
    probe = sql.Identifier(SCHEMA, "of_a_role")
    connection.execute(sql.SQL("CREATE TYPE {} AS (value integer)").format(probe))
    for role in (APP, WORKER, BACKUP, OWNER):
        connection.execute(sql.SQL("ALTER TYPE {} OWNER TO {}").format(probe, sql.Identifier(role)))
    connection.execute(sql.SQL("DROP TYPE {}").format(probe))
