"""The library beside its peers: quality, latency, ingestion and storage, of all systems in one run.

    python -m benchmarks.peers [--set NAME ...] [--systems a,b] [--json FILE] [--markdown FILE] [--quick]

Each evaluation set is chunked and embedded once. Then each system in turn stores the same chunks with the same vectors
in a database of its own on one embedded server, and answers the same questions with 30 chunks. Peers run in the
environment that `make bench` makes for them; one that fails is a row that says why.
"""

import argparse
import atexit
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import platformdirs

from benchmarks.beir import load
from benchmarks.peers import children
from benchmarks.peers.kosmos import Ours, embedder, settings
from benchmarks.peers.remembering import Remembering
from benchmarks.peers.report import Measured, markdown, show
from benchmarks.peers.result import System, judged, summaries
from benchmarks.peers.server import Server, size
from benchmarks.peers.sets import PreparedSet, prepare

OURS = "kosmos_rag"
NAMES = {OURS: OURS, **children.PEERS, **children.FLOOR}
ROUNDS = 1
QUICK_QUESTIONS = 10
_CACHE = platformdirs.user_cache_path("kosmos-rag", appauthor=False) / "bench"
_SETS = Path(__file__).parents[3] / "shared" / "datasets"


def main() -> None:
    """Run the benchmark."""
    arguments = _arguments()
    if set(arguments.systems) - {OURS}:
        children.require_environment()
    scratch = Path(tempfile.mkdtemp(prefix="kosmos-bench-"))
    # What is registered first is done last: the server has stopped by then, and does not lose its folder while it runs.
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    server = Server(scratch / "server")
    sets = [_measured(server, folder, arguments, scratch) for folder in arguments.sets]
    machine = _machine() | server.versions()
    show(sets)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"machine": machine, "sets": [asdict(one) for one in sets]}, indent=2) + "\n")
    if arguments.markdown is not None:
        command = " ".join(["python -m benchmarks.peers", *sys.argv[1:]])
        arguments.markdown.write_text(markdown(sets, command, machine))
    print(f"figures: {arguments.json}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--set", dest="sets", type=_folder, action="append", metavar="NAME",
        help="a set of ../shared/datasets, or a folder in the BEIR layout; may be repeated",
    )  # fmt: skip
    parser.add_argument("--systems", type=_systems, default=list(NAMES), metavar="a,b", help=", ".join(NAMES))
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/peers.json"), metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as Markdown too")
    parser.add_argument("--quick", action="store_true", help="a few questions, once, to see that it works")
    arguments = parser.parse_args()
    arguments.sets = arguments.sets or [_folder(name) for name in ("cranfield", "cacm")]
    return arguments


def _folder(name: str) -> Path:
    folder = next((folder for folder in (Path(name), _SETS / name) if folder.is_dir()), None)
    if folder is None:
        raise SystemExit(f"there is no evaluation set {name!r}, here or in {_SETS}; name a folder: --set FOLDER")
    return folder


def _systems(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := sorted(set(chosen) - set(NAMES)):
        raise argparse.ArgumentTypeError(f"no system {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return chosen


def _measured(server: Server, folder: Path, arguments: argparse.Namespace, scratch: Path) -> Measured:
    """Measure the systems on one set, one after the other."""
    began = time.perf_counter()

    def say(words: str) -> None:
        print(f"{time.perf_counter() - began:7.1f} s  {folder.name}: {words}", file=sys.stderr, flush=True)

    say("chunking and embedding, once for all systems: minutes in a first run, then remembered")
    model = Remembering(embedder("torch"), _CACHE / f"{folder.name}-minilm.pickle")
    data = prepare(load(folder), settings(), model)
    model.save()
    if arguments.quick:
        data = data.asked(QUICK_QUESTIONS)
    data.corpus.write(scratch)
    systems = {}
    for key in (key for key in NAMES if key in arguments.systems):
        say(NAMES[key])
        systems[key] = _system(key, server, data, model, ROUNDS, scratch)
    return Measured(
        set=folder.name,
        documents=len(data.documents),
        chunks=len(data.corpus.ids),
        questions=len(data.corpus.questions),
        systems=list(systems.values()),
        summaries=summaries(systems.get(OURS), [systems[key] for key in children.PEERS if key in systems]),
    )


def _system(key: str, server: Server, data: PreparedSet, model: Remembering, rounds: int, scratch: Path) -> System:
    """Measure one system in a database of its own."""
    with server.database(f"bench_{key}") as url:
        try:
            if key == OURS:
                outcome = Ours(server, f"bench_{key}", data, model).measure(rounds)
            else:
                outcome = children.measure(key, scratch, url, rounds)
        except children.PeerFailed as error:
            return System(name=NAMES[key], rows=[], versions={}, failure=str(error))
        return judged(NAMES[key], data, outcome, size(url) if outcome.seconds else None)


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
