"""Measure the first question after a restart of process and database, and commands that store one document.

    python -m benchmarks.start [--data FOLDER] [--rounds N] [--json FILE] [--quick]

A set in the BEIR layout is ingested once. Each round is a process of its own: it starts the embedded server, loads the
model as the service does before it is ready, and asks. Where the process may, it empties the file cache of the system
before: the database is then read from the disk. A quick run leaves the cache: it slows the whole machine. It leaves
out the commands too, which need a model. Their figure is the processor time of all their processes, without the server.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.beir import load
from benchmarks.command import DATASETS, MODEL, command, parse, temporary_folder, write_results
from benchmarks.quick import embedder, write_evaluation_set
from kosmos_rag import Engine, Settings, SourceDocument

WARM = 10
"""Questions before the server and the process count as warm."""
_FILE_CACHE = Path("/proc/sys/vm/drop_caches")


def _settings(folder: Path) -> Settings:
    return Settings.load(overrides={**MODEL, "database.data_dir": str(folder / "postgres")})


def ask(folder: Path, questions: Sequence[str], *, warm: bool, quick: bool) -> dict[str, float]:
    """Start, ask, and return seconds of the start and milliseconds of the questions.

    Args:
        folder: Of the database.
        questions: Different ones, so that no result is cached.
        warm: Whether the indexes are read into memory before, as `index warm` does.
        quick: Whether vectors are word hashes.
    """
    settings = _settings(folder)
    model = embedder(settings, quick=quick)
    began = time.perf_counter()
    with Engine(settings, embedder=model) as engine:
        tenant = engine.tenant("acme")
        engine.warm_up()
        if warm:
            tenant.indexes.warm()
        ready = time.perf_counter() - began
        times = []
        for question in questions:
            started = time.perf_counter()
            tenant.search(question, 10)
            times.append((time.perf_counter() - started) * 1000)
    return {
        "ready_s": round(ready, 2),
        "first_ms": round(times[0], 1),
        "second_ms": round(times[1], 1),
        "warm_ms": round(statistics.median(times[WARM:]), 1),
    }


def _empty_file_cache() -> bool:
    os.sync()
    try:
        _FILE_CACHE.write_text("3")
    except OSError:
        return False
    return True


def ingest(data: Path, folder: Path, *, quick: bool) -> dict[str, Any]:
    """Ingest a set and write some of its questions to a file."""
    labelled = load(data)
    with Engine(_settings(folder), embedder=embedder(_settings(folder), quick=quick)) as engine:
        report = engine.tenant("acme").ingest(
            SourceDocument(source=key, title=title or None, data=text.encode())
            for key, (title, text) in labelled.documents.items()
        )
    if report.failed:
        raise SystemExit(f"{len(report.failed)} documents failed, the first: {report.failed[0]}")
    questions = list(labelled.queries.values())[: 4 * WARM]
    (folder / "questions.json").write_text(json.dumps(questions), encoding="utf-8")
    return {"set": data.name, "chunks": report.chunks}


def measure_commands(folder: Path, rounds: int) -> dict[str, float]:
    """Return the least processor seconds of `ingest` and `worker` that store one document."""
    overrides = {**MODEL, "database.data_dir": str(folder / "postgres")}
    options = [f"--set={key}={json.dumps(value)}" for key, value in overrides.items()]
    seconds: dict[str, list[float]] = {"ingest": [], "worker": []}
    with Engine(_settings(folder)) as engine:  # the server runs already
        for number, name in itertools.product(range(rounds), seconds):
            documents = folder / f"{name}-{number}"
            documents.mkdir()
            (documents / "note.md").write_text(f"# Note {number}\n\nA text for {name}.\n", encoding="utf-8")
            arguments = [str(documents), "--tenant", "commands"]
            if name == "worker":
                engine.tenant("commands").jobs.enqueue(documents)
                arguments = ["--until-idle"]
            before = os.times()
            command = [sys.executable, "-m", "kosmos_rag", name, *arguments, *options]
            subprocess.run(command, check=True, capture_output=True)
            after = os.times()
            user, system = (after[field] - before[field] for field in (2, 3))  # of the processes that have ended
            seconds[name].append(user + system)
    return {name: round(min(samples), 2) for name, samples in seconds.items()}


def _run(*arguments: str, quick: bool) -> Any:
    """Run this module in a process of its own, with which the server stops, and return what it prints."""
    child = [sys.executable, "-m", "benchmarks.start", *arguments, *(["--quick"] if quick else [])]
    ran = subprocess.run(child, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"a process failed: {ran.stderr.strip().splitlines()[-1]}")
    return json.loads(ran.stdout.splitlines()[-1])


def measure(data: Path, folder: Path, rounds: int, *, quick: bool) -> dict[str, Any]:
    """Ingest a set, and start and ask in as many processes as there are rounds."""
    ingested = _run("--ingest", str(folder), "--data", str(data), quick=quick)
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        rows.setdefault("from the file cache", []).append(_run("--ask", str(folder), quick=quick))
        for kind, options in (("from the disk", ()), ("from the disk, after index warm", ("--warm",))):
            if not quick and _empty_file_cache():
                rows.setdefault(kind, []).append(_run("--ask", str(folder), *options, quick=quick))
    medians = {
        kind: {name: statistics.median(row[name] for row in samples) for name in samples[0]}
        for kind, samples in rows.items()
    }
    commands = {} if quick else _run("--commands", str(folder), f"--rounds={rounds}", quick=quick)
    return {**ingested, "rounds": rounds, "medians": medians, "command_cpu_s": commands}


def _print(medians: Mapping[str, Mapping[str, float]]) -> None:
    print("| | ready, s | first question, ms | second | warm | first / warm |\n|---|---:|---:|---:|---:|---:|")
    for kind, row in medians.items():
        ratio = row["first_ms"] / row["warm_ms"]
        print(f"| {kind} | {' | '.join(str(value) for value in row.values())} | {ratio:.1f} |")


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "start.json")
    parser.add_argument("--data", type=Path, default=DATASETS / "cranfield", metavar="FOLDER", help="a labelled set")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="processes of each kind")
    for child in ("--ingest", "--ask", "--commands"):
        parser.add_argument(child, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    scratch = temporary_folder()
    arguments = parse(parser, data=scratch / "set", rounds=1)
    if arguments.ingest is not None:
        print(json.dumps(ingest(arguments.data, arguments.ingest, quick=arguments.quick)))
        return
    if arguments.commands is not None:
        print(json.dumps(measure_commands(arguments.commands, arguments.rounds)))
        return
    if arguments.ask is not None:
        questions = json.loads((arguments.ask / "questions.json").read_text(encoding="utf-8"))
        print(json.dumps(ask(arguments.ask, questions, warm=arguments.warm, quick=arguments.quick)))
        return
    if arguments.data == scratch / "set":
        write_evaluation_set(arguments.data, questions=2 * WARM)
    results = measure(arguments.data, scratch, arguments.rounds, quick=arguments.quick)
    _print(results["medians"])
    for name, seconds in results["command_cpu_s"].items():
        print(f"\nkosmos-rag {name}, one document: {seconds} s of processor time")
    write_results(arguments.json, results)


if __name__ == "__main__":
    main()
