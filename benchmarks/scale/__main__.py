"""Measure retrieval as tenants grow: both retrievers, alone, together, and alternatives.

    python -m benchmarks.scale [--chunks N] [--data natural|zipf] [--json FILE] [--plot FILE] [--quick]

On an embedded server in a temporary folder, five tenants of very different sizes are published, indexed, searched and
written to. The command prints one table with the goals, and writes the figures as JSON and as a plot.
"""

import argparse
import gc
import json
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.command import command, parse, temporary_folder
from benchmarks.scale import peers, writes
from benchmarks.scale.data import MADE, QUESTIONS, SmallZipfData, load_data
from benchmarks.scale.load import LARGEST, Say, build_indexes, clock, publish_all, shares, storage, vacuum
from benchmarks.scale.measure import (
    BOTH,
    CLIENTS,
    LEXICAL,
    NEW_WORD,
    OURS,
    Measured,
    Prepared,
    Row,
    embedder,
    measure_tenant,
    open_engines,
    settings,
    throughput,
)
from benchmarks.scale.plot import plot
from benchmarks.scale.report import show, to_dict
from kosmos_rag.models.embedding.space import PROBE
from kosmos_rag.storage.database import Database, resolve_addresses


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much is asked and written."""

    warm: int
    """Questions before those of a row are timed."""
    questions: int
    """Questions of a row."""
    seconds: float
    """Length of each run with several clients."""
    published: int
    """Chunks that are published into a large tenant and an empty one."""


USUAL = Effort(warm=50, questions=QUESTIONS - 50, seconds=10, published=1_000)
QUICK = Effort(warm=2, questions=5, seconds=0.2, published=50)


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "scale.json")
    parser.add_argument("--chunks", type=int, default=100_000, help="rows of all tenants together")
    parser.add_argument("--data", choices=["natural", *MADE], default="natural")
    parser.add_argument("--plot", type=Path, default=Path("benchmarks/results/scale.png"), metavar="FILE")
    scratch = temporary_folder()
    arguments = parse(parser, chunks=1000, data=SmallZipfData.name, plot=scratch / "scale.png")
    rows, result = _run(arguments, scratch)
    title = f"{result['chunks']:,} chunks, {result['data']}"
    plot(rows, title, arguments.plot)
    _save(arguments.json, rows, result)
    # A pipe has no width of its own, and a table cut to 80 columns cannot be read.
    show(result, rows, Console(width=None if sys.stdout.isatty() else 190))
    print(f"plot: {arguments.plot}" + (f", figures: {arguments.json}" if arguments.json else ""))


def _save(file: Path | None, rows: Sequence[Row], result: dict[str, Any]) -> None:
    """Write what there is so far: a run over a million chunks takes most of an hour, and its end may fail."""
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**result, "rows": [to_dict(row) for row in rows]}, indent=2, default=str))


def _run(arguments: argparse.Namespace, scratch: Path) -> tuple[list[Row], dict[str, Any]]:
    say = clock()
    effort = QUICK if arguments.quick else USUAL
    whole = embedder(arguments.data)
    data = load_data(arguments.data, whole, say)
    extra_vectors = {text: whole.embed_query(text) for text in (PROBE, NEW_WORD)}
    prepared = Prepared({**data.questions, **extra_vectors}, data.dimensions)
    questions = list(data.questions)
    warm, test_questions = questions[: effort.warm], questions[effort.warm : effort.warm + effort.questions]
    configured = settings(scratch, data.dimensions, {}).database
    with closing(Database(configured)) as database, open_engines(scratch, prepared, whole) as engines:
        admin, tenants = resolve_addresses(configured).admin or "", shares(arguments.chunks)
        result = {
            "chunks": arguments.chunks,
            "data": data.name,
            "questions": len(test_questions),
            "machine": _machine(admin),
        }
        result["load"] = publish_all(database, data, tenants, prepared, say)
        vacuum(admin)
        result["indexes"] = build_indexes(engines[BOTH], tenants, say)
        vacuum(admin)
        result["storage"] = storage(admin, arguments.chunks)
        # As the service does it: a full collection of garbage would look at all that was imported.
        gc.freeze()
        measured = []
        for share in tenants:
            say(f"asking tenant {share.tenant}, {share.chunks:,} chunks")
            measured.append(measure_tenant(engines, share, warm, test_questions))
        result["throughput"] = []
        for clients in CLIENTS:
            say(f"{clients} clients at once")
            largest = engines[BOTH].tenant(LARGEST)
            result["throughput"].append(throughput(largest, test_questions, clients, effort.seconds))
        _save(arguments.json, [row for tenant in measured for row in tenant.rows], result)
        vectors = [data.questions[question] for question in test_questions]
        rows, result["notes"] = _measure_peers(admin, measured, test_questions, vectors, say)
        _save(arguments.json, rows, result)
        say("writing")
        result["publishing"] = writes.measure_publishing(database, data, prepared, effort.published)
        result["found"] = writes.check_visibility(database, scratch, prepared)
        say("asking during maintenance")
        result["maintenance"] = writes.maintenance(scratch, data, engines[BOTH], test_questions)
    return rows, result


def _measure_peers(
    admin: str, measured: Sequence[Measured], questions: Sequence[str], vectors: Sequence[NDArray[np.float32]], say: Say
) -> tuple[list[Row], list[str]]:
    """Measure the alternatives on copies, and add them to our rows; returns words on those that are missing too."""
    rows: list[Row] = []
    with peers.connect(admin) as connection:
        peers.copy_tables(connection, len(vectors[0]), say)
        for tenant in measured:
            share = tenant.rows[0].share
            say(f"asking the alternatives for tenant {share.tenant}")
            in_memory, references = peers.bm25_in_memory(connection, share, questions)
            off = peers.difference(tenant.scores, references)
            rows += [
                replace(row, difference=off) if (row.retriever, row.way) == (LEXICAL, OURS) else row
                for row in tenant.rows
            ]
            rows += [in_memory, *peers.lexical(connection, share, questions)]
            rows += peers.dense(connection, share, vectors, tenant.exact)
        missing = [] if peers.has_textsearch(connection) else [f"{peers.TEXTSEARCH} is not loaded on this server"]
        connection.execute("DROP SCHEMA bench CASCADE")
    return rows, missing


def _machine(admin: str) -> dict[str, Any]:
    with psycopg.connect(admin) as connection:
        versions = "SELECT current_setting('server_version'), extversion FROM pg_extension WHERE extname = 'vector'"
        server, vector = connection.execute(versions).fetchone() or ("", "")
    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "postgresql": server,
        "pgvector": vector,
    }


if __name__ == "__main__":
    main()
