"""Searches and publications by way of PgBouncer in transaction mode, in front of a node."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.citus_cluster import LocalCluster
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.provision import APP, WORKER
from tests.citus.load import tenants_by_port
from tests.conftest import PASSWORD
from tests.pgbouncer import find_pgbouncer, running_pgbouncer

PORT = 16432


@pytest.fixture
def port(local: LocalCluster, tmp_path: Path) -> Iterator[int]:
    """The port of the node that PgBouncer is in front of."""
    if find_pgbouncer() is None:
        pytest.skip("pgbouncer is not installed")
    node = local.workers[0]
    (tmp_path / "users").write_text("".join(f'"{role}" "{PASSWORD}"\n' for role in (APP, WORKER, "postgres")))
    with running_pgbouncer(
        tmp_path,
        {
            "auth_type": "plain",
            "auth_file": tmp_path / "users",
            "default_pool_size": 2,
            "server_tls_sslmode": "require" if local.tls else "disable",
        },
        server=f"host=127.0.0.1 port={node.port}",
        url=f"postgresql://{APP}:{PASSWORD}@127.0.0.1:{{port}}/kosmos?sslmode=disable",
        port=PORT,
    ):
        yield node.port


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
