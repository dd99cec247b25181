"""PgBouncer in transaction mode, with the configuration of docs/how-to/pgbouncer.md."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.ports import find_free_port

_SETTINGS: dict[str, object] = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "pool_mode": "transaction",
    "max_client_conn": 1000,
    "ignore_startup_parameters": "options",
}


def find_pgbouncer() -> str | None:
    """Return the path of the program; None where it is not installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def running_pgbouncer(
    folder: Path,
    settings: Mapping[str, object],
    *,
    server: str,
    url: str,
    port: int | None = None,
    user: int | str = "nobody",
) -> Iterator[int]:
    """Run PgBouncer for the time of a block; gives its port.

    Args:
        folder: Of its configuration, which the user of the process can read afterwards.
        settings: Of the section `[pgbouncer]`.
        server: The server that it is in front of, like `host=127.0.0.1 port=5432`.
        url: An address by way of it, with `{port}`, that opens once it is ready.
        port: Its port; None for a free one.
        user: Whose process it is where this one is of root, whom PgBouncer refuses.
    """
    program = find_pgbouncer()
    assert program is not None, "pgbouncer is not installed"
    port = port or find_free_port()
    lines = [f"{name} = {value}" for name, value in {**_SETTINGS, "listen_port": port, **settings}.items()]
    configuration = folder / "pgbouncer.ini"
    configuration.write_text("\n".join(["[databases]", f"* = {server}", "[pgbouncer]", *lines, ""]))
    # With pytest-xdist there is one more of them.
    temporary = Path(tempfile.gettempdir())
    parents = [parent for parent in folder.parents if temporary in parent.parents]
    for path in (folder, *parents, *folder.iterdir()):
        path.chmod(0o755)
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [program, str(configuration)], stdout=log, stderr=log, user=user if os.geteuid() == 0 else None
        ) as started,
    ):
        try:
            _wait(url.format(port=port), folder / "log")
            yield port
        finally:
            started.terminate()


def _wait(url: str, log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        else:
            return
