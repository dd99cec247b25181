"""Start a Citus cluster on this machine, with passwords and TLS.

    with citus_cluster(Path("/usr/lib/postgresql/17/bin"), passwords={...}) as cluster:
        cluster.settings("kosmos")

The programs are of a PostgreSQL with Citus and pgvector. If root starts the servers, they run as `nobody`. Their data
is in a temporary folder, in memory if there is enough. Passwords and TLS apply between the nodes too.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import psutil
import psycopg
from psycopg import sql

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.provision import APP, OWNER, WORKER

_ADMIN = "postgres"
_CONFIGURATION = """
wal_level = logical
max_connections = 200
max_prepared_transactions = 200
shared_buffers = 128MB
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = {port}
"""
_WITH_TLS = """
ssl = on
ssl_cert_file = '{folder}/node.crt'
ssl_key_file = '{folder}/node.key'
"""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One server of the cluster."""

    programs: Path
    data: Path
    port: int

    @property
    def pid(self) -> int:
        """The postmaster."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        folder = self.data.parent
        arguments = ("-D", self.data, "-l", folder / f"{self.port}.log", "-w", "start")
        _run(self.programs / "pg_ctl", *arguments, logins=folder / "passwords")

    @property
    def running(self) -> bool:
        """Whether the server takes connections or will."""
        try:
            return bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        except (FileNotFoundError, psutil.NoSuchProcess):
            return False

    def ensure_started(self) -> None:
        """Start the server unless it runs."""
        if not self.running:
            self.start()

    def stop(self) -> None:
        """End the server and its sessions."""
        _run(self.programs / "pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")

    def kill(self) -> None:
        """Kill the server and its sessions by signal 9, as a machine that loses its power."""
        pid = self.pid
        # psutil reads all processes of the machine to find the children of one: too slow to kill at a moment.
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for member in (pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(psutil.pid_exists(int(child)) for child in children) and time.monotonic() < deadline:
            time.sleep(0.01)

    def cpu_s(self) -> float:
        """CPU seconds of the server since its start, those of ended sessions included."""
        postmaster = psutil.Process(self.pid)
        usage = postmaster.cpu_times()
        total = usage.user + usage.system + usage.children_user + usage.children_system
        for child in postmaster.children():
            with suppress(psutil.NoSuchProcess):
                times = child.cpu_times()
                total += times.user + times.system
        return float(total)


@dataclass(frozen=True, kw_only=True)
class LocalCluster:
    """A coordinator and its workers. Without workers it is a single server without Citus."""

    folder: Path
    nodes: tuple[Node, ...]
    passwords: Mapping[str, str]
    """By role."""
    tls: bool
    """Whether the programs were built with TLS. If so, the servers take no connection without it."""

    @property
    def connection_options(self) -> dict[str, str]:
        """Options of libpq for connections to the servers."""
        if not self.tls:
            return {"sslmode": "disable"}
        return {"sslmode": "verify-full", "sslrootcert": f"{self.folder}/node.crt"}

    @property
    def coordinator(self) -> Node:
        """The server that clients connect to."""
        return self.nodes[0]

    @property
    def workers(self) -> tuple[Node, ...]:
        """The servers that hold the tenants."""
        return self.nodes[1:]

    def url(self, role: str, database: str, node: Node | None = None) -> str:
        """The address of a database as a role."""
        port = (node or self.coordinator).port
        options = urlencode(self.connection_options)
        return f"postgresql://{role}:{self.passwords[role]}@127.0.0.1:{port}/{database}?{options}"

    def settings(self, database: str) -> DatabaseSettings:
        """Settings with all three roles."""
        return DatabaseSettings(
            url=self.url(APP, database), worker_url=self.url(WORKER, database), admin_url=self.url(_ADMIN, database)
        )

    def create_database(self, database: str) -> None:
        """Create a database on every node, and make them a cluster."""
        for node in self.nodes:
            with psycopg.connect(self.url(_ADMIN, "postgres", node), autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
            if self.workers:
                with psycopg.connect(self.url(_ADMIN, database, node), autocommit=True) as connection:
                    connection.execute("CREATE EXTENSION citus")
        with psycopg.connect(self.url(_ADMIN, database), autocommit=True) as connection:
            if self.workers:
                address = "127.0.0.1"
                connection.execute("SELECT citus_set_coordinator_host(%s, %s)", [address, self.coordinator.port])
                for node in self.workers:
                    connection.execute("SELECT citus_add_node(%s, %s)", [address, node.port])
            # The nodes log in to each other as it, so it has a password before the first migration.
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                    sql.Identifier(OWNER), sql.Literal(self.passwords[OWNER])
                )
            )


@contextmanager
def citus_cluster(programs: Path, *, passwords: Mapping[str, str], workers: int = 2) -> Iterator[LocalCluster]:
    """Start a cluster, and remove it at the end.

    Args:
        programs: folder of `initdb` and `pg_ctl`, of a PostgreSQL with Citus and pgvector.
        passwords: by role: `postgres`, and the three of the library.
        workers: how many workers; 0 starts a single server without Citus.
    """
    memory = Path("/dev/shm")
    usable = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 * 2**30
    folder = Path(tempfile.mkdtemp(prefix="kosmos-citus-", dir=memory if usable else None))
    cluster = LocalCluster(
        folder=folder,
        nodes=tuple(
            Node(programs=programs, data=folder / str(number), port=_free_port()) for number in range(workers + 1)
        ),
        passwords=passwords,
        tls=_has_tls(programs),
    )
    try:
        _prepare(cluster)
        yield cluster
    finally:
        for node in cluster.nodes:
            with suppress(subprocess.CalledProcessError):
                node.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def clone_node(cluster: LocalCluster, node: Node) -> Iterator[Node]:
    """Start a replica of a server of the cluster, by streaming replication."""
    replica = Node(programs=node.programs, data=cluster.folder / f"replica-{node.port}", port=_free_port())
    with (node.data / "pg_hba.conf").open("a") as access:
        access.write(f"{'hostssl' if cluster.tls else 'host'} replication all 127.0.0.1/32 scram-sha-256\n")
    with psycopg.connect(cluster.url(_ADMIN, "postgres", node), autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
    _run(
        node.programs / "pg_basebackup", "--pgdata", replica.data, "--write-recovery-conf", "--checkpoint=fast",
        "--no-sync", "--dbname", cluster.url(_ADMIN, "postgres", node), logins=cluster.folder / "passwords",
    )  # fmt: skip
    with (replica.data / "postgresql.auto.conf").open("a") as configuration:
        configuration.write(f"port = {replica.port}\n")
    replica.start()
    try:
        yield replica
    finally:
        with suppress(subprocess.CalledProcessError):
            replica.stop()


def _prepare(cluster: LocalCluster) -> None:
    folder = cluster.folder
    _give(folder)
    if cluster.tls:
        _run(
            Path(shutil.which("openssl") or "openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", folder / "node.key", "-out", folder / "node.crt",
        )  # fmt: skip
    # The coordinator reads here what it logs in to the workers with.
    logins = folder / "passwords"
    logins.write_text("".join(f"*:*:*:{role}:{password}\n" for role, password in cluster.passwords.items()))
    secret = folder / "administrator"
    secret.write_text(cluster.passwords[_ADMIN])
    for file in (logins, secret):
        _give(file)
        file.chmod(0o600)
    for node in cluster.nodes:
        _run(
            node.programs / "initdb", "-D", node.data, "-U", _ADMIN, "--auth=scram-sha-256", f"--pwfile={secret}",
            "--no-sync",
        )  # fmt: skip
        text = _CONFIGURATION.format(port=node.port)
        if cluster.tls:
            text += _WITH_TLS.format(folder=folder)
        if cluster.workers:
            options = " ".join(f"{name}={value}" for name, value in cluster.connection_options.items())
            # A node connects to itself by this name too, and the certificate is for the address.
            text += (
                f"shared_preload_libraries = 'citus'\ncitus.node_conninfo = '{options}'\n"
                "citus.local_hostname = '127.0.0.1'\n"
            )
        with (node.data / "postgresql.conf").open("a") as configuration:
            configuration.write(text)
        kind = "hostssl" if cluster.tls else "host"
        (node.data / "pg_hba.conf").write_text(f"{kind} all all 127.0.0.1/32 scram-sha-256\n")
        node.start()


def _has_tls(programs: Path) -> bool:
    return "openssl" in _run(programs / "pg_config", "--configure")


def _give(path: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(path, "nobody")


def _run(program: Path, *arguments: object, logins: Path | None = None) -> str:
    # Nodes look for certificates in the home folder, which is not readable where they run as another user.
    environment = os.environ | {"LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
    if any((libraries := program.parent.parent / "lib").glob("libpq.so*")):
        environment["LD_LIBRARY_PATH"] = str(libraries)
    if logins is not None:
        environment["PGPASSFILE"] = str(logins)
    # A file and no pipe: the server would hold a pipe open for ever.
    with tempfile.TemporaryFile("w+") as output:
        subprocess.run(
            [str(program), *map(str, arguments)], env=environment, cwd="/", check=True, timeout=120,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            user="nobody" if os.geteuid() == 0 else None,
        )  # fmt: skip
        output.seek(0)
        return output.read()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
