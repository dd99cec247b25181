"""Compare quality, latency, ingestion and storage of the library and its peers.

    python -m benchmarks.peers [--set NAME ...] [--systems a,b] [--json FILE] [--markdown FILE] [--quick]

All systems run in one run. Each evaluation set is chunked and embedded once. Then each system in turn stores the same
chunks with the same vectors in a database of its own on one embedded server, and answers the same questions with 30
chunks. Peers run in the environment that `make bench` makes for them. If a peer fails, its row has the reason. A quick
run has only the library, over sections of examples/.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import platformdirs

from benchmarks.beir import load
from benchmarks.command import DATASETS, command, parse, temporary_folder, write_results
from benchmarks.peers import children
from benchmarks.peers.kosmos import BACKENDS, Ours, embedder, settings
from benchmarks.peers.remembering import Remembering
from benchmarks.peers.report import Measured, markdown, show
from benchmarks.peers.result import System, judge, summaries
from benchmarks.peers.server import Server, size
from benchmarks.peers.sets import PreparedSet, prepare
from benchmarks.quick import write_evaluation_set
from kosmos_rag.core.protocols import Embedder

OURS = "kosmos_rag"
NAMES = {OURS: OURS, **children.PEERS, **children.FLOOR}
ROUNDS = 1
_CACHE = platformdirs.user_cache_path("kosmos-rag", appauthor=False) / "bench"


def main() -> None:
    """Run the benchmark."""
    arguments = _arguments()
    if set(arguments.systems) - {OURS}:
        children.require_environment()
    scratch = temporary_folder()
    server = Server(scratch / "server")
    sets = [_measure_set(server, folder, arguments, scratch) for folder in arguments.sets]
    machine = _machine() | server.versions()
    show(sets)
    if arguments.markdown is not None:
        command = " ".join(["python -m benchmarks.peers", *sys.argv[1:]])
        arguments.markdown.write_text(markdown(sets, command, machine))
    write_results(arguments.json, {"machine": machine, "sets": [asdict(report) for report in sets]})


def _arguments() -> argparse.Namespace:
    parser = command(__doc__, "peers.json")
    parser.add_argument(
        "--set", dest="sets", type=_folder, action="append", metavar="NAME",
        help="a set of ../shared/datasets, or a folder in the BEIR layout; may be repeated",
    )  # fmt: skip
    parser.add_argument("--systems", type=_systems, default=list(NAMES), metavar="a,b", help=", ".join(NAMES))
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the tables as a page too: docs/benchmarks/peers.md"
    )
    arguments = parse(parser, systems=[OURS])
    if arguments.quick and not arguments.sets:
        arguments.sets = [write_evaluation_set(temporary_folder() / "examples")]
    arguments.sets = arguments.sets or [_folder(name) for name in ("cranfield", "cacm")]
    return arguments


def _folder(name: str) -> Path:
    folder = next((folder for folder in (Path(name), DATASETS / name) if folder.is_dir()), None)
    if folder is None:
        raise SystemExit(f"there is no evaluation set {name!r}, here or in {DATASETS}; name a folder: --set FOLDER")
    return folder


def _systems(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := sorted(set(chosen) - set(NAMES)):
        raise argparse.ArgumentTypeError(f"no system {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return chosen


def _measure_set(server: Server, folder: Path, arguments: argparse.Namespace, scratch: Path) -> Measured:
    """Measure the systems on one set, one after the other."""
    began = time.perf_counter()

    def say(words: str) -> None:
        print(f"{time.perf_counter() - began:7.1f} s  {folder.name}: {words}", file=sys.stderr, flush=True)

    say("chunking and embedding, once for all systems: minutes in a first run, then remembered")
    models = {backend: embedder(backend, quick=arguments.quick) for backend in BACKENDS}
    cache = scratch if arguments.quick else _CACHE
    model = Remembering(models["torch"], cache / f"{folder.name}-minilm.pickle")
    data = prepare(load(folder), settings(), model)
    model.save()
    data.corpus.write(scratch)
    systems = {}
    for key in (key for key in NAMES if key in arguments.systems):
        say(NAMES[key])
        systems[key] = _system(key, server, data, model, models, scratch)
    return Measured(
        set=folder.name,
        documents=len(data.documents),
        chunks=len(data.corpus.ids),
        questions=len(data.corpus.questions),
        systems=list(systems.values()),
        summaries=summaries(systems.get(OURS), [systems[key] for key in children.PEERS if key in systems]),
    )


def _system(
    key: str, server: Server, data: PreparedSet, model: Remembering, models: Mapping[str, Embedder], scratch: Path
) -> System:
    """Measure one system in a database of its own."""
    with server.database(f"bench_{key}") as url:
        try:
            if key == OURS:
                outcome = Ours(server, f"bench_{key}", data, model, models).measure(ROUNDS)
            else:
                outcome = children.measure(key, scratch, url, ROUNDS)
        except children.PeerFailed as error:
            return System(name=NAMES[key], rows=[], versions={}, failure=str(error))
        return judge(NAMES[key], data, outcome, size(url) if outcome.seconds else None)


def _machine() -> dict[str, str]:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "Python": platform.python_version(),
    }


if __name__ == "__main__":
    main()
