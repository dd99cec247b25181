"""What the service costs: the same questions by the library and by HTTP in turns, and by many clients at once.

    python -m benchmarks.service [--rounds N] [--clients N] [--seconds N] [--json FILE]

The documents and the questions are those of examples/. The service runs in a process of its own, as `kosmos-rag serve`
does, in development mode, and both ask one database. What else the machine does falls on both alike.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import psutil
import yaml

from kosmos_rag import Engine, Settings

EXAMPLES = Path(__file__).parents[1] / "examples"
MODEL = {
    "rag.embedding.model": "packaged:all-MiniLM-L6-v2",
    "rag.embedding.dimensions": 384,
    "rag.reranking.enabled": False,
}


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def _summary(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=100)
    return {"p50_ms": round(statistics.median(times), 2), "p95_ms": round(cuts[94], 2), "p99_ms": round(cuts[98], 2)}


@contextmanager
def _serving(folder: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serve in development mode, whose one identity needs no key, from another process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {
        "database.data_dir": folder,
        "service.port": port,
        "service.development.tenant": "acme",
        "service.rates.tenant_per_minute": 0,
        "service.rates.subject_per_minute": 0,
    }
    pairs = [f"{key}={json.dumps(value)}" for key, value in (MODEL | own).items()]
    options = [part for pair in pairs for part in ("--set", pair)]
    process = subprocess.Popen([sys.executable, "-m", "kosmos_rag.cli", "serve", *options], env=os.environ.copy())
    url = f"http://127.0.0.1:{port}"
    try:
        while process.poll() is None and not _ready(url):
            time.sleep(0.1)
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def in_turns(engine: Engine, url: str, questions: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Return the times of both, and of the difference of each pair."""
    scope = engine.tenant("acme")
    times: dict[str, list[float]] = {"library": [], "service": []}
    with httpx.Client(base_url=url, trust_env=False) as client:

        def by_http(question: str) -> None:
            client.post("/v1/search", json={"question": question}).raise_for_status()

        for turn in range(-1, rounds):
            for question in questions:
                calls: list[tuple[str, Callable[[], object]]] = [
                    ("library", partial(scope.retrieve, question)),
                    ("service", partial(by_http, question)),
                ]
                for name, call in calls if turn % 2 else reversed(calls):
                    taken = _ms(call)
                    if turn >= 0:  # the first round is to warm up
                        times[name].append(taken)
    added = [after - before for before, after in zip(times["library"], times["service"], strict=True)]
    return {name: _summary(taken) for name, taken in (times | {"added": added}).items()}


def _ask(clients: int, seconds: float, once: Callable[[int], int]) -> dict[str, object]:
    """Have so many ask in a loop; `once` returns a status."""
    until = time.monotonic() + seconds
    times: list[float] = []
    statuses: dict[int, int] = {}
    lock = threading.Lock()

    def loop(number: int) -> None:
        while time.monotonic() < until:
            began = time.perf_counter()
            status = once(number)
            taken = (time.perf_counter() - began) * 1000
            with lock:
                statuses[status] = statuses.get(status, 0) + 1
                if status == 200:
                    times.append(taken)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"per_s": round(len(times) / seconds, 1), **_summary(times), "statuses": statuses}


def at_once(
    engine: Engine, url: str, questions: list[str], clients: int, seconds: float, process: "subprocess.Popen[bytes]"
) -> dict[str, object]:
    """Return what many clients get of the service, and what as many threads get of the library."""
    scope = engine.tenant("acme")
    by_client = [httpx.Client(base_url=url, timeout=60, trust_env=False) for _ in range(clients)]
    seen = psutil.Process(process.pid)

    def by_http(number: int) -> int:
        question = questions[(number * 7) % len(questions)]
        return by_client[number].post("/v1/search", json={"question": question}).status_code

    def by_library(number: int) -> int:
        scope.retrieve(questions[(number * 7) % len(questions)])
        return 200

    _ask(clients, min(5.0, seconds), by_http)
    before = seen.memory_info().rss
    service = _ask(clients, seconds, by_http)
    grown = (seen.memory_info().rss - before) / (1 << 20)
    for client in by_client:
        client.close()
    threads = engine.settings.database.pool_size
    return {
        "service": {"clients": clients, **service, "memory_grown_mb": round(grown, 1)},
        "library": {"threads": threads, **_ask(threads, seconds, by_library)},
    }


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    questions = [
        entry["question"] for entry in yaml.safe_load((EXAMPLES / "questions.yaml").read_text(encoding="utf-8"))
    ]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.load(overrides=MODEL | {"database.data_dir": folder})
        with Engine.open(settings) as engine:
            engine.tenant("acme").ingest(EXAMPLES / "knowledge_base")
            with _serving(folder) as (url, process):
                found: dict[str, object] = dict(in_turns(engine, url, questions, arguments.rounds))
                found["at_once"] = at_once(engine, url, questions, arguments.clients, arguments.seconds, process)
    text = json.dumps(found, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
