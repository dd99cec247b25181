"""Measure passes of a permission feed over unchanged documents.

    python -m benchmarks.permissions [--documents N] [--containers N] [--dimensions N] [--vector auto|ivfflat|hnsw|none]
                                     [--json FILE] [--quick]

It publishes documents of one chunk with random vectors and known permissions, and builds the indexes. Then each pass is
a feed in a file of JSON Lines. CPU seconds are those of this process and of the server with its background processes.
No text is embedded: the benchmark fails if one is.
"""

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg

from benchmarks.command import command, parse, temporary_folder, write_results
from benchmarks.ingest import STOP_WORDS
from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import DEFAULT_COLLECTION, EVERYONE, PERMISSION_FEED, Chunk, Space
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.publish import PreparedDocument, publish
from kosmos_rag.storage.tenants import SpaceStore, TenantRef

WORDS = 20_000
TOKENS = 60
BATCH = 2000
GROUPS = 40
TOPICS = 300
"""Vectors lie around so many points: an index over vectors without any structure is no use."""


class Counter(HashingEmbedder):
    """Counts the texts that are embedded as documents."""

    texts = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, and count them."""
        self.texts += len(texts)
        return super().embed(texts)


def _documents(owner: TenantRef, count: int, space: Space) -> Iterator[PreparedDocument]:
    """Yield documents of one chunk: Zipf-distributed words, with the stop words of English."""
    dice, generator = random.Random(1), np.random.default_rng(1)
    vocabulary = STOP_WORDS + [f"{dice.choice(STOP_WORDS)}{number:x}" for number in range(WORDS)]
    weights = np.cumsum([1 / (rank + 2.7) for rank in range(len(vocabulary))]).tolist()
    topics = generator.standard_normal((TOPICS, space.dimensions), dtype=np.float32)
    for number in range(count):
        text = " ".join(dice.choices(vocabulary, cum_weights=weights, k=TOKENS))
        noise = generator.standard_normal((1, space.dimensions), dtype=np.float32)
        vector = topics[number % TOPICS] + 0.5 * noise
        yield PreparedDocument(
            id=document_id(owner.id, DEFAULT_COLLECTION, f"page-{number}"), version_id=uuid.uuid4(),
            source=f"page-{number}", title=f"Page {number}", media_type="text/plain", language="english", metadata={},
            acl=(PERMISSION_FEED,), content_hash="0" * 64, fingerprint="0" * 64, bytes=len(text), text=text, pages=(),
            chunks=[
                Chunk(
                    chunk_index=0, start=0, end=len(text), text=text, section=(), line_start=1, line_end=1,
                    page_start=None, page_end=None, tokens=TOKENS, chunker="bench",
                )
            ],
            embedded=[text], analysed=[text],
            vectors={space.id: vector / np.linalg.norm(vector)},
        )  # fmt: skip


def _publish(engine: Engine, owner: TenantRef, count: int) -> None:
    worker, now = engine.database.worker, datetime.now(UTC)
    # The first document of a tenant creates its embedding space.
    engine.tenant(owner.name).ingest(SourceDocument(source="first", data=b"first", acl=(PERMISSION_FEED,)))
    with worker.transaction(owner.id, [EVERYONE]) as connection:
        space = SpaceStore(connection, owner.id).find_live()
    assert space is not None
    documents = _documents(owner, count, space)
    while batch := list(islice(documents, BATCH)):
        with worker.transaction(owner.id, [EVERYONE]) as connection:
            publish(connection, owner.id, batch, collection=DEFAULT_COLLECTION, now=now, events=EventBuffer())


def write_feed(path: Path, documents: int, containers: int, groups: Callable[[int], Sequence[str]]) -> None:
    """Write a feed: documents lie in the containers one after the other; `groups` returns the principals of one."""
    with path.open("w") as file:
        for number in range(containers):
            file.write(json.dumps({"container": f"space-{number}", "principals": list(groups(number))}) + "\n")
        for number in range(documents):
            file.write(
                json.dumps({"document": f"page-{number}", "containers": [f"space-{number * containers // documents}"]})
                + "\n"
            )


def _groups(container: int, shift: int) -> list[str]:
    dice = random.Random(container * 31 + shift)
    return [f"group:{number}" for number in dice.sample(range(GROUPS), 3)]


def _cpu_s(admin: str) -> float:
    """Return the CPU seconds of this process and of the server's processes that live."""
    with psycopg.connect(admin) as connection:
        pids = [pid for (pid,) in connection.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")]
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    seconds: float = sum(usage.user + usage.system for usage in times)
    return time.process_time() + seconds


@contextmanager
def _measure_pass(admin: str, figures: dict[str, Any]) -> Iterator[None]:
    cpu_s, began = _cpu_s(admin), time.perf_counter()
    yield
    figures["seconds"] = round(time.perf_counter() - began, 1)
    figures["cpu_s"] = round(_cpu_s(admin) - cpu_s, 1)


def _passes(tenant: Tenant, admin: str, path: Path, documents: int, containers: int) -> dict[str, dict[str, Any]]:
    feeds: Mapping[str, Callable[[int], Sequence[str]]] = {
        "every container changes": lambda container: _groups(container, 1),
        "one container changes": lambda container: _groups(container, 1 if container else 2),
        "no change": lambda container: _groups(container, 1 if container else 2),
        "all revoked": lambda _: [],
    }
    figures: dict[str, dict[str, Any]] = {}
    for name, groups in feeds.items():
        figures[name] = {}
        with _measure_pass(admin, figures[name]):
            figures[name]["changed"] = _sync(tenant, path, documents, containers, groups)
        print(f"{name:<28}{figures[name]['changed']:>9,} documents {figures[name]['seconds']:>8.1f} s"
              f"{figures[name]['cpu_s']:>8.1f} CPU s", flush=True)  # fmt: skip
    return figures


def _sync(tenant: Tenant, path: Path, documents: int, containers: int, groups: Callable[[int], Sequence[str]]) -> int:
    write_feed(path, documents, containers, groups)
    return tenant.sync_permissions({"kind": "json_lines", "name": "bench", "path": str(path)}).changed


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "permissions.json")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--containers", type=int, default=200)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument(
        "--vector", choices=("auto", "ivfflat", "hnsw", "none"), default="auto", help="kind of vector index"
    )
    arguments = parse(parser, documents=300, containers=6)
    folder = temporary_folder()
    settings = Settings.load(
        overrides={"database.data_dir": str(folder / "database"), "indexes.vector": arguments.vector}
    )
    embedder = Counter(dimensions=arguments.dimensions)
    with Engine(settings, embedder=embedder) as engine:
        tenant = engine.tenant("bench")
        began = time.perf_counter()
        feed = (folder / "feed.jsonl", arguments.documents, arguments.containers)
        _sync(tenant, *feed, lambda container: _groups(container, 0))
        _publish(engine, TenantRef(id=tenant.id, name=tenant.name), arguments.documents)
        print(f"published in {time.perf_counter() - began:.0f} s", flush=True)
        tenant.indexes.build()
        built = [f"{info.kind} {info.rows:,}" for info in tenant.indexes.status()]
        print(f"indexes: {', '.join(built)} after {time.perf_counter() - began:.0f} s", flush=True)
        embedded = embedder.texts
        admin = engine.database.admin_conninfo
        passes = _passes(tenant, admin, *feed)
        assert embedder.texts == embedded, "a permission sync embeds nothing"
    keys = ("documents", "containers", "dimensions", "vector")
    write_results(arguments.json, {**{key: getattr(arguments, key) for key in keys}, "passes": passes})


if __name__ == "__main__":
    main()
