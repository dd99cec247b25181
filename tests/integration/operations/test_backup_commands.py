"""`kosmos-rag backup` and `restore`: a server that is destroyed comes back as it was, older ones are migrated."""

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, DatabaseError, DatabaseNotReady, KosmosError, RequestError
from kosmos_rag.core.types import Filter, JobState
from kosmos_rag.engine.restored_passages import _require_hidden, _Sample
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import embedded
from kosmos_rag.storage.backup import DUMP_OPTIONS, RESTORE_OPTIONS, _compare, back_up, restore
from kosmos_rag.storage.database import resolve_addresses
from kosmos_rag.storage.migrate import REVISION
from kosmos_rag.worker.handlers.maintenance import count_orphans
from tests.commands import Run, run_command
from tests.integration.variants import changed
from tests.revisions import add_revision
from tests.waiting import eventually

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "restore.md").read_text()

# A server of its own for most tests: not in every run.
pytestmark = pytest.mark.slow

TENANTS = ("acme", "other")


@pytest.fixture
def own_server(loaded_settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """Settings with an embedded server of this test's own, and an audit log."""
    database = DatabaseSettings(data_dir=tmp_path / "data")
    yield changed(loaded_settings, {"database": database, "rag.audit.enabled": True})
    _destroy(tmp_path / "data")


@pytest.fixture
def kosmos(own_server: Settings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command over that server."""
    monkeypatch.setenv("KOSMOS_DATABASE__DATA_DIR", str(own_server.database.data_dir))
    return run_command


def _destroy(folder: Path) -> None:
    """Kill the server of a folder, and remove both."""
    pidfile = folder / "postmaster.pid"
    if pidfile.exists():
        server = psutil.Process(int(pidfile.read_text().splitlines()[0]))
        server.kill()
        server.wait(20)
    shutil.rmtree(folder, ignore_errors=True)


def _fill(engine: Engine) -> None:
    for name in TENANTS:
        tenant = engine.tenant(name)
        tenant.ingest(
            SourceDocument(
                source=f"{name}-{number}",
                data=f"The secret of {name} number {number} is churn.".encode(),
                acl=("department:board",) if number % 3 == 0 else ("everyone",),
            )
            for number in range(12)
        )
        tenant.search("churn")
        tenant.audit.seal()
        tenant.jobs.enqueue(SourceDocument(source=f"{name}-late", data=b"waits in the queue"))


def _results(engine: Engine) -> dict[str, list[tuple[str, float]]]:
    """Hits with their scores, of everyone and of the board."""
    return {
        f"{name} {principal}": [
            (hit.source, hit.score)
            for hit in engine.tenant(name, principals=["everyone", principal]).search("secret churn", 50).hits
        ]
        for name in TENANTS
        for principal in ("nobody:else", "department:board")
    }


def _sealed(engine: Engine) -> dict[str, tuple[str | None, int]]:
    """The head of each tenant's chain of seals, and how many records they vouch for."""
    reports = {name: engine.tenant(name).audit.verify() for name in TENANTS}
    assert all(report.intact and report.seals for report in reports.values())
    return {name: (report.head, report.rows) for name, report in reports.items()}


class _Writer:
    """Ingests pairs of documents, each pair in one transaction, until it is told to stop."""

    def __init__(self, engine: Engine) -> None:
        self.published = 0
        self._tenant = engine.tenant("busy")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "_Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.is_set():
            pair = [(side, f"pair {self.published} {side}".encode()) for side in ("left", "right")]
            self._tenant.ingest(
                [SourceDocument(source=f"{self.published}-{side}", data=data) for side, data in pair], prune=False
            )
            self.published += 1

    def wait_for(self, count: int) -> None:
        """Wait until so many pairs are published."""
        eventually(lambda: self.published >= count, within_s=60)


def test_backup__of_a_destroyed_server_brings_everything_back(
    own_server: Settings, kosmos: Run, tmp_path: Path
) -> None:
    """The backup of a destroyed server restores everything, also permissions and audit seals."""
    file = tmp_path / "kosmos.dump"
    with Engine(own_server, embedder=HashingEmbedder()) as engine:
        _fill(engine)
        results, sealed = _results(engine), _sealed(engine)
        with _Writer(engine) as writer:
            writer.wait_for(3)
            before = writer.published
            result = kosmos("backup", str(file), "--json")
            after = writer.published
            writer.wait_for(after + 2)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"file": str(file), "bytes": file.stat().st_size, "revision": REVISION}
    assert file.stat().st_mode & 0o077 == 0, "everybody's documents are for nobody else"
    assert len(results["acme nobody:else"]) < len(results["acme department:board"]) == 12

    assert own_server.database.data_dir is not None
    _destroy(own_server.database.data_dir)
    result = kosmos("restore", str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout == f"3 tenants restored at revision {REVISION}; row-level security is in force\n"

    with Engine(own_server, embedder=HashingEmbedder()) as engine:
        assert _sealed(engine) == sealed
        assert _results(engine) == results
        assert engine.tenant("acme").jobs.find(states=[JobState.QUEUED])
        sources = set(engine.tenant("busy").sources())
        pairs = {source.partition("-")[0] for source in sources}
        assert sources == {f"{pair}-{side}" for pair in pairs for side in ("left", "right")}, "no half transaction"
        assert pairs >= {str(number) for number in range(before)}
        assert pairs <= {str(number) for number in range(after + 1)}
        for name in (*TENANTS, "busy"):
            orphans = count_orphans(engine.database, engine.tenant(name)._tenant)
            assert not any(orphans.values()), orphans
        assert engine.tenant("acme").ingest(SourceDocument(source="new", data=b"goes on")).new == 1
    assert kosmos("restore", str(file)).output.startswith(
        "error: the database has 3 tenants; restore into an empty database"
    )


def test_restore__verifies_rows_passages_and_readers(own_server: Settings, kosmos: Run, tmp_path: Path) -> None:
    file = tmp_path / "kosmos.dump"
    with Engine(own_server, embedder=HashingEmbedder()) as engine:
        _fill(engine)
    assert kosmos("backup", str(file)).exit_code == 0
    assert own_server.database.data_dir is not None
    _destroy(own_server.database.data_dir)
    result = kosmos("restore", str(file), "--verify")
    assert result.exit_code == 0, result.output
    assert re.search(r"\d{3} rows as in the file; 10 of 10 passages found by their words", result.stdout)


def test_restore__keeps_the_records_of_deleted_tenants(own_server: Settings, kosmos: Run, tmp_path: Path) -> None:
    file = tmp_path / "kosmos.dump"
    with Engine(own_server, embedder=HashingEmbedder()) as engine:
        _fill(engine)
        assert kosmos("backup", str(file)).exit_code == 0
        for name in TENANTS:
            engine.tenant(name).erase_all()
    result = kosmos("restore", str(file))
    assert result.exit_code == 1
    assert "the database has records of deleted tenants in audit_events, audit_passages," in result.output
    assert kosmos("restore", str(file)).exit_code == 1, "the first one has dropped nothing"


def test_check_of_passages__tells_of_one_that_a_stranger_gets(own_server: Settings) -> None:
    with Engine(own_server, embedder=HashingEmbedder()) as engine:
        _fill(engine)
        (document,) = engine.tenant("acme").documents(filter=Filter(where={"source": "acme-1"}))
        public = _Sample(document.id, "default", ["everyone"], "secret of acme number 1")
        _require_hidden(engine, "acme", "other", public)
        with pytest.raises(DatabaseError, match=r"shows document .* to readers that it is not for"):
            _require_hidden(engine, "acme", "other", replace(public, acl=["department:board"]))
        with pytest.raises(DatabaseError, match=r"the tenant acme gets document .* of the tenant other"):
            _require_hidden(engine, "other", "acme", public)


def test_compare__names_tables_that_differ(own_server: Settings, tmp_path: Path) -> None:
    file = tmp_path / "kosmos.dump"
    with Engine(own_server, embedder=HashingEmbedder()) as engine:
        _fill(engine)
    # After the engine has written what it used.
    back_up(own_server.database, file)
    admin = str(resolve_addresses(own_server.database).admin)
    assert _compare(file, own_server.database, admin) > 100
    with psycopg.connect(admin) as connection:
        connection.execute("UPDATE kosmos.documents SET title = 'another' WHERE source = 'acme-1'")
        connection.execute("DELETE FROM kosmos.feedback; DELETE FROM kosmos.jobs WHERE kind = 'document'")
    with pytest.raises(
        DatabaseError,
        match=r"documents has rows that are not those of the file; jobs has \d rows in the file and \d in",
    ):
        _compare(file, own_server.database, admin)


def test_restore__of_an_older_revision_is_migrated(
    own_server: Settings, kosmos: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup of an older revision is migrated when it is restored.

    The upgrade drill: a backup that the version before made comes back under one with a later revision.
    """
    file = tmp_path / "old.dump"
    with Engine(own_server, embedder=HashingEmbedder()) as engine:
        _fill(engine)
        results, sealed = _results(engine), _sealed(engine)
        with psycopg.connect(engine.database.admin_conninfo) as connection:
            # As older code has a function of its own that newer code has replaced, and one that newer code lacks.
            connection.execute("CREATE FUNCTION kosmos.of_old() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
            connection.execute("ALTER FUNCTION kosmos.visible_principals(text[]) VOLATILE")
            connection.execute("ALTER FUNCTION kosmos.of_old() OWNER TO kosmos_owner")
    assert json.loads(kosmos("backup", str(file), "--json").stdout)["revision"] == REVISION
    later = add_revision(tmp_path, monkeypatch)
    assert own_server.database.data_dir is not None
    _destroy(own_server.database.data_dir)

    result = kosmos("restore", str(file), "--json")
    assert json.loads(result.stdout) == {"tenants": 2, "before": REVISION, "after": later}
    with Engine(own_server, embedder=HashingEmbedder()) as engine:
        assert (_results(engine), _sealed(engine)) == (results, sealed)


def test_restore__that_breaks_off_leaves_an_empty_database(own_server: Settings, kosmos: Run, tmp_path: Path) -> None:
    file = tmp_path / "kosmos.dump"
    with Engine(own_server, embedder=HashingEmbedder()) as engine:
        _fill(engine)
    assert kosmos("backup", str(file)).exit_code == 0
    assert own_server.database.data_dir is not None
    _destroy(own_server.database.data_dir)
    cut = tmp_path / "cut.dump"
    cut.write_bytes(file.read_bytes()[: file.stat().st_size * 9 // 10])
    with pytest.raises((DatabaseError, RequestError)):
        restore(own_server.database, cut)
    assert restore(own_server.database, file).tenants == 2


# Servers by URL. Its programs are those of the path.


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client programs on the path: of the embedded server, which is the one of most runs."""
    if os.environ.get("KOSMOS_TEST_DATABASE_URL") or os.environ.get("KOSMOS_TEST_DOCKER"):
        pytest.skip("pg_dump has to be of the server's version: that of the embedded one is at hand")
    monkeypatch.setenv("PATH", f"{embedded.program('pg_dump').parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("programs")
def test_backup__of_a_server_by_url(
    settings: Settings, empty_database: DatabaseSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "kosmos.dump"
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest(SourceDocument(source="a", data=b"Churn is the share of customers who leave."))
    assert back_up(settings.database, file).revision == REVISION
    restored = restore(empty_database, file)
    assert (restored.tenants, restored.before, restored.after) == (1, REVISION, REVISION)
    with Engine(settings.model_copy(update={"database": empty_database}), embedder=HashingEmbedder()) as engine:
        assert [hit.source for hit in engine.tenant("acme").search("churn").hits] == ["a"]


@pytest.mark.usefixtures("programs")
def test_backup__as_a_role_that_policies_bind_leaves_no_file(settings: Settings, tmp_path: Path) -> None:
    bound = settings.database.model_copy(update={"admin_url": settings.database.url})
    with pytest.raises(DatabaseError, match="GRANT kosmos_backup TO kosmos_app"):
        back_up(bound, tmp_path / "kosmos.dump")
    assert list(tmp_path.iterdir()) == []
    back_up(settings.database, tmp_path / "good.dump")
    with pytest.raises(ConfigError, match="GRANT kosmos_backup"):
        restore(bound, tmp_path / "good.dump")


@pytest.mark.usefixtures("programs")
def test_restore__of_a_damaged_file_names_the_file_as_a_cause(
    settings: Settings, empty_database: DatabaseSettings, tmp_path: Path
) -> None:
    """It ended with `out of memory; check the server`."""
    file = tmp_path / "kosmos.dump"
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest(SourceDocument(source="a", data=b"churn " * 20_000))
    back_up(settings.database, file)
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(byte ^ 0x5A for byte in content[middle : middle + 200])
    file.write_bytes(content)
    with pytest.raises(KosmosError, match="another backup"):
        restore(empty_database, file, verify=True)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("name", "error", "remedy"),
    [
        ("pg_dump", "server closed the connection", "by `kosmos-rag doctor`"),
        ("pg_restore", "could not open input file: Permission denied", "let this user read and write the file"),
        ("pg_restore", "could not read from input file: end of file", "or of another program: restore another backup"),
        ("pg_restore", "out of memory", "where they are right, the file is damaged: take another backup"),
    ],
)
def test_failed_program__has_a_remedy_of_its_own(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: str, remedy: str
) -> None:
    with psycopg.connect(settings.database.admin_url or "") as connection:
        version = connection.info.server_version // 10_000
    program = tmp_path / "bin" / name
    program.parent.mkdir()
    case = f"*--version*) echo '{name} (PostgreSQL) {version}.0';; *) echo '{name}: error: {error}' >&2; exit 1;;"
    program.write_text(f'#!/bin/sh\ncase "$*" in {case} esac\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    file = tmp_path / "kosmos.dump"
    if name == "pg_restore":
        file.write_text("a backup")
    with pytest.raises(KosmosError) as caught:
        (back_up if name == "pg_dump" else restore)(settings.database, file)
    assert str(caught.value).endswith(remedy)


@pytest.mark.usefixtures("programs")
def test_restore__refuses_what_is_no_backup_of_ours(
    settings: Settings, empty_database: DatabaseSettings, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="there is no file"):
        restore(empty_database, tmp_path / "missing.dump")
    (tmp_path / "text.dump").write_text("words")
    with pytest.raises(RequestError, match=r"is no backup that can be read: .*: restore another backup"):
        restore(empty_database, tmp_path / "text.dump")
    assert settings.database.admin_url is not None
    with psycopg.connect(settings.database.admin_url) as connection:
        connection.execute("UPDATE kosmos.alembic_version SET version_num = '9999'")
    newer = tmp_path / "newer.dump"
    back_up(settings.database, newer)
    with pytest.raises(DatabaseNotReady, match="revision 9999, unknown to this version; install a newer kosmos-rag"):
        restore(empty_database, newer)
    with pytest.raises(RequestError, match="exists, and a backup overwrites nothing"):
        back_up(settings.database, newer)
    with psycopg.connect(settings.database.admin_url) as connection:
        connection.execute("UPDATE kosmos.alembic_version SET version_num = '0024'")
    older = tmp_path / "older.dump"
    back_up(settings.database, older)
    with pytest.raises(DatabaseNotReady, match=r"revision 0024 is older than release 0\.1\.0"):
        restore(empty_database, older)


def test_backup__overwrites_no_file_that_is_there_or_appears_meanwhile(settings: Settings, tmp_path: Path) -> None:
    other, file = tmp_path / "kosmos.dump.partial", tmp_path / "kosmos.dump"
    other.write_text("of another backup")
    other.chmod(0o644)
    back_up(settings.database, file)
    assert other.read_text() == "of another backup"
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    assert settings.database.admin_url is not None
    with ThreadPoolExecutor(1) as pool, psycopg.connect(settings.database.admin_url) as connection:
        connection.execute("LOCK TABLE kosmos.tenants IN ACCESS EXCLUSIVE MODE")
        backup = pool.submit(back_up, settings.database, file)
        eventually(lambda: len(list(tmp_path.glob("kosmos.dump.*.partial"))) == 1)
        file.write_text("of a faster one")
        connection.rollback()
        with pytest.raises(RequestError, match="exists, and a backup overwrites nothing"):
            backup.result()
    assert file.read_text() == "of a faster one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kosmos.dump", "kosmos.dump.partial"]


def test_backup__without_the_programs_says_what_to_run(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kosmos_rag.storage.backup.is_installed", lambda _module: False)
    with pytest.raises(
        ConfigError, match=r"pg_dump is not installed here.* run where they are: pg_dump --format=custom"
    ):
        back_up(settings.database, tmp_path / "kosmos.dump")
    without: Any = settings.database.model_copy(update={"admin_url": None})
    with pytest.raises(ConfigError, match=r"database\.admin_url is not set"):
        back_up(without, tmp_path / "kosmos.dump")


def test_page__has_the_options_of_the_commands() -> None:
    for program, options in (("pg_dump", DUMP_OPTIONS), ("pg_restore", RESTORE_OPTIONS)):
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"{program} ")]
        assert line.startswith(f"{program} {' '.join(options)} ")
