"""Searches and publications by way of PgBouncer in transaction mode, in front of a node."""

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from benchmarks.citus_cluster import LocalCluster
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.provision import APP, WORKER
from tests.citus.load import tenants_by_port
from tests.conftest import PASSWORD

PORT = 16432
_CONFIGURATION = """
[databases]
kosmos = host=127.0.0.1 port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = plain
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 2
ignore_startup_parameters = options
server_tls_sslmode = {tls}
admin_users = postgres
"""


@pytest.fixture
def port(local: LocalCluster, tmp_path: Path) -> Iterator[int]:
    """The port of the node that PgBouncer is in front of."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    folder, node = tmp_path, local.workers[0]
    users = "".join(f'"{role}" "{PASSWORD}"\n' for role in (APP, WORKER, "postgres"))
    (folder / "users").write_text(users)
    text = _CONFIGURATION.format(
        port=node.port, own_port=PORT, folder=folder, tls="require" if local.tls else "disable"
    )
    (folder / "pgbouncer.ini").write_text(text)
    # With pytest-xdist there is one more of them.
    temporary = Path(tempfile.gettempdir())
    parents = [parent for parent in folder.parents if temporary in parent.parents]
    for path in (folder, *parents, folder / "users", folder / "pgbouncer.ini"):
        path.chmod(0o755)
    command = [program, str(folder / "pgbouncer.ini")]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, user="nobody" if os.geteuid() == 0 else None) as started,
    ):
        try:
            url = f"postgresql://{APP}:{PASSWORD}@127.0.0.1:{PORT}/kosmos?sslmode=disable"
            deadline = time.monotonic() + 30
            while True:
                try:
                    psycopg.connect(url).close()
                    break
                except psycopg.OperationalError:
                    assert time.monotonic() < deadline, (folder / "log").read_text()
                    time.sleep(0.1)
            yield node.port
        finally:
            started.terminate()


def test_node__is_used_by_way_of_pgbouncer(port: int, settings: Settings) -> None:
    """Eight threads share two connections of the server: no reader gets the tenant of another one."""
    urls = {key: f"{getattr(settings.database, key).partition('?')[0]}?sslmode=prefer" for key in ("url", "worker_url")}
    database = settings.database.model_copy(update={"use_nodes": True, "node_port": PORT, **urls})
    with Engine(settings, embedder=HashingEmbedder()) as direct:
        names: list[str] = []
        while len(names) < 2:
            names += [name for result, name in tenants_by_port(direct).items() if result == port]
    with Engine(settings.model_copy(update={"database": database}), embedder=HashingEmbedder()) as engine:
        for name in names:
            text = f"The margin of {name}."
            engine.tenant(name).ingest([SourceDocument(source=f"{name}-{n}", data=text.encode()) for n in range(10)])
        wrong: list[object] = []

        def ask(name: str) -> None:
            for number in range(20):
                hits = engine.tenant(name).search(f"margin {number}").hits
                if not hits or any(not hit.source.startswith(name) for hit in hits):
                    wrong.append(hits)

        threads = [threading.Thread(target=ask, args=(names[number % 2],)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
