"""One side of `benchmarks.question`: answer questions with a checkout, and report the cost.

It runs with the checkout on PYTHONPATH, which may be an older one, so it uses nothing but the library. With
`--publications` a second process publishes a document as often, in time that questions take.
"""

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg.waiting import Wait

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.offline import load_beir
from kosmos_rag.models.testing.hashing import HashingEmbedder


def _settings(folder: Path) -> Settings:
    return Settings.load(
        overrides={
            "database.data_dir": str(folder),
            "rag.embedding.model": "hashing",
            "rag.embedding.dimensions": 384,
            "rag.reranking.enabled": False,
            "rag.retrieval.result_cache": 0,
            "indexes.vector": "none",
        }
    )


def _backend_s(engine: Engine) -> float:
    """Return the processor time of the backends that readers are connected to."""
    with psycopg.connect(engine.database.admin_conninfo) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE usename = 'kosmos_app'").fetchall()
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for (pid,) in rows) / 1e9


@contextmanager
def _count_statements(walk: dict[str, int]) -> Iterator[None]:
    """Count statements, and waits for the server to answer."""

    execute, wait = psycopg.Cursor.execute, psycopg.Connection.wait

    def executing(*args: Any, **kwargs: Any) -> Any:
        walk["statements"] += 1
        return execute(*args, **kwargs)

    def waiting(connection: Any, steps: Any, *args: Any, **kwargs: Any) -> Any:
        return wait(connection, count_waits(steps), *args, **kwargs)

    def count_waits(steps: Any) -> Any:
        ready = None
        try:
            while True:
                state = steps.send(ready)
                walk["waits"] += state == Wait.R
                ready = yield state
        except StopIteration as stop:
            return stop.value

    walk |= {"statements": 0, "waits": 0}
    with patch.object(psycopg.Cursor, "execute", executing), patch.object(psycopg.Connection, "wait", waiting):
        yield


class Publisher:
    """A process that publishes documents of the set again, under other names."""

    def __init__(self, options: list[str], rate: float) -> None:
        """Start it. Args: rate: Publications in a second that questions take; 0 for none."""
        self._seconds = 1 / rate if rate else float("inf")
        self._due = 0.0
        command = [sys.executable, "-P", __file__, *options, "--publish"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True) if rate else None

    def publish(self, seconds: float) -> None:
        """Have it publish what is due after seconds of questions."""
        self._due += seconds
        while self._process is not None and self._process.stdin is not None and self._due >= self._seconds:
            self._due -= self._seconds
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """End the process, and wait for it."""
        if self._process is not None:
            self._process.communicate(timeout=60)


def _publish_lines(engine: Engine, documents: Iterable[SourceDocument]) -> None:
    """Publish a document for each line of the standard input."""
    for number, (_, document) in enumerate(zip(sys.stdin, itertools.cycle(list(documents)), strict=False)):
        copy = SourceDocument(source=f"copy-{number}.md", data=document.data)
        engine.tenant("acme").ingest([copy], prune=False)


def _answer(tenant: Tenant, questions: list[str], engine: Engine, publish: Callable[[float], None]) -> dict[str, Any]:
    server, client, began = _backend_s(engine), time.process_time(), time.perf_counter()
    results, last = [], began
    for question in questions:
        results.append(tenant.search(question))
        now = time.perf_counter()
        publish(now - last)
        last = now
    wall, spent = time.perf_counter() - began, time.process_time() - client
    server = _backend_s(engine) - server
    hits = [
        (hit.source, hit.chunk_index, hit.text, hit.score, hit.dense_score, hit.lexical_score)
        for result in results
        for hit in result.hits
    ]
    digest = hashlib.sha256(json.dumps(hits).encode()).hexdigest()
    figures = {"client_ms": spent, "server_ms": server, "wall_ms": wall}
    return {name: 1000 * value / len(questions) for name, value in figures.items()} | {"hits": digest}


def main() -> None:
    """Store the documents, then answer the blocks of questions that the standard input names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--principals", type=int, required=True)
    parser.add_argument("--segments", action="store_true")
    parser.add_argument("--publications", type=float, default=0)
    parser.add_argument("--publish", action="store_true", help="be the process that publishes")
    arguments = parser.parse_args()
    beir = load_beir(arguments.data)
    with Engine(_settings(arguments.folder), embedder=HashingEmbedder(dimensions=384)) as engine:
        if arguments.publish:
            _publish_lines(engine, beir.documents())
            return
        engine.tenant("acme").ingest(beir.documents(), prune=False)
        if arguments.segments:
            engine.tenant("acme").indexes.build()
        principals = ["everyone", *(f"group:{number}" for number in range(1, arguments.principals))]
        tenant, questions = engine.tenant("acme", principals=principals), [q.text for q in beir.questions.questions]
        with psycopg.connect(engine.database.admin_conninfo, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            chunks = connection.execute("SELECT count(*) FROM kosmos.chunks").fetchone()
        _answer(tenant, questions, engine, lambda _: None)
        walk: dict[str, int] = {}
        with _count_statements(walk):
            tenant.search(questions[0])
        print(json.dumps({"questions": len(questions), "chunks": chunks and chunks[0], "walk": walk}), flush=True)
        publisher = Publisher(sys.argv[1:], arguments.publications)
        for line in sys.stdin:
            start, stop = map(int, line.split())
            print(json.dumps(_answer(tenant, questions[start:stop], engine, publisher.publish)), flush=True)
        publisher.close()


if __name__ == "__main__":
    main()
