"""Measure the cost of the service: questions by the library and by HTTP.

    python -m benchmarks.service [--rounds N] [--clients N] [--seconds N] [--processes N] [--json FILE] [--quick]

Both answer the same questions in turn; then many clients ask at once. The documents and the questions are those of
examples/. The service runs in a process of its own, as `kosmos-rag serve` does, in development mode, and both use one
database. Then the clients ask as many of these processes as `--processes` says, in equal parts. Other work on the
machine affects all alike. For comparison, a plain FastAPI service around LangChain's retriever has the same chunks,
model and server. It runs in the environment that `make bench` makes for the peers, and is left out if there is none.

Clients use `http.client`. A client of httpx takes three times as much processor time for a request, on the same cores
as the service.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
import yaml

from benchmarks.command import EXAMPLES, MODEL, ROOT, command, parse, temporary_folder, write_results
from benchmarks.peers import children
from benchmarks.peers.server import Server
from benchmarks.quick import embedder
from kosmos_rag import Engine, Settings

ADDED_P50_MS = 5.0
SPREAD = 10.0
"""Targets: what HTTP may add to the p50, and the p99 by the p50 of many clients."""
_TO_COME_AGAIN = {429, 503}
_STARTED_WITHIN_S = 600
_WARM_S = 5.0

Figures = dict[str, Any]
Running = tuple[str, "subprocess.Popen[bytes]"]
"""Address and process of a server."""


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def summarize(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=100)
    return {"p50_ms": round(statistics.median(times), 2), "p95_ms": round(cuts[94], 2), "p99_ms": round(cuts[98], 2)}


@contextmanager
def run_server(*command: str | Path) -> Iterator[Running]:
    """Run a server in a process of its own, `--port` with a free one behind its command, until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*command, "--port", str(port)], cwd=ROOT, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=sys.stderr
    )
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + _STARTED_WITHIN_S
        while not _ready(url):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{command[2]} does not serve at {url}; see what it said above")
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


@contextmanager
def run_service(folder: str, *, quick: bool = False) -> Iterator[Running]:
    """Serve in development mode, whose one identity needs no key."""
    settings = {
        "database.data_dir": folder,
        "service.development.tenant": "acme",
        "service.rates.tenant_per_minute": 0,
        "service.rates.subject_per_minute": 0,
    }
    pairs = [f"{key}={json.dumps(value)}" for key, value in {**MODEL, **settings}.items()]
    options = [part for pair in pairs for part in ("--set", pair)]
    module = "benchmarks.service_quick" if quick else "kosmos_rag"
    with run_server(sys.executable, "-m", module, "serve", *options) as running:
        yield running


@contextmanager
def peer(python: Path, folder: str, texts: list[str]) -> Iterator[Running]:
    """Serve the same chunks by FastAPI and LangChain, from a database of their own on the same server."""
    file = Path(folder).with_suffix(".texts.json")
    file.write_text(json.dumps(texts), encoding="utf-8")
    command: list[str | Path] = [python, "-m", "benchmarks.peers.langchain_service", "--texts", file]
    with Server(Path(folder)).database("bench_langchain_service") as url, run_server(*command, "--url", url) as running:
        yield running


def measure_in_turn(engine: Engine, servers: Mapping[str, str], questions: list[str], rounds: int) -> Figures:
    """Return the times of all, and of what each server's are longer than the library's, pair by pair."""
    tenant = engine.tenant("acme")
    clients = {name: _connect(url) for name, url in servers.items()}
    ways: dict[str, Callable[[str], object]] = {
        "library": tenant.search,
        **{name: partial(_search, client) for name, client in clients.items()},
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-1, rounds):
        for question in questions:
            for name in ways if turn % 2 else reversed(ways):
                elapsed = _ms(partial(ways[name], question))
                if turn >= 0:  # the first round is to warm up
                    times[name].append(elapsed)
    for client in clients.values():
        client.close()
    added = {
        f"{name}, added": [after - before for before, after in zip(times["library"], times[name], strict=True)]
        for name in servers
    }
    return {name: summarize(milliseconds) for name, milliseconds in (times | added).items()}


def _connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)


def _post(client: http.client.HTTPConnection, question: str) -> int:
    """Ask a question, read the answer, and return its status."""
    body = json.dumps({"question": question}).encode()
    client.request("POST", "/v1/search", body, {"Content-Type": "application/json"})
    response = client.getresponse()
    response.read()
    return response.status


def _search(client: http.client.HTTPConnection, question: str) -> None:
    if (status := _post(client, question)) != 200:
        raise SystemExit(f"a search was answered with status {status}")


def _ask(clients: int, seconds: float, once: Callable[[int, int], int]) -> Figures:
    """Have so many ask in a loop; `once` is given the client and the turn, and returns a status, 0 for none."""
    until = time.monotonic() + seconds
    times: list[float] = []
    statuses: Counter[int] = Counter()
    lock = threading.Lock()

    def loop(number: int) -> None:
        turn = 0
        while time.monotonic() < until:
            began = time.perf_counter()
            status = once(number, turn)
            elapsed = (time.perf_counter() - began) * 1000
            turn += 1
            with lock:
                statuses[status] += 1
                if status == 200:
                    times.append(elapsed)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = sum(count for status, count in statuses.items() if status != 200 and status not in _TO_COME_AGAIN)
    return {"per_s": round(len(times) / seconds, 1), **summarize(times), "statuses": dict(statuses), "errors": errors}


def measure_http(servers: list[Running], questions: list[str], clients: int, seconds: float) -> Figures:
    """Return what many clients get of servers in equal parts, and what these hold in memory before and after."""
    processes = [psutil.Process(process.pid) for _, process in servers]
    connected = [_connect(servers[number % len(servers)][0]) for number in range(clients)]

    def measure_use() -> tuple[float, float]:
        memory_mb = sum(process.memory_info().rss for process in processes) / (1 << 20)
        return memory_mb, sum(sum(process.cpu_times()[:2]) for process in processes)

    def once(number: int, turn: int) -> int:
        question = questions[(number * 7 + turn) % len(questions)]
        try:
            return _post(connected[number], question)
        except (OSError, http.client.HTTPException):
            connected[number].close()
            return 0

    _ask(clients, min(_WARM_S, seconds), once)
    begun_mb, begun_s = measure_use()
    figures = _ask(clients, seconds, once)
    ended_mb, ended_s = measure_use()
    answers = max(1, round(figures["per_s"] * seconds))
    for client in connected:
        client.close()
    cpu_ms = round(1000 * (ended_s - begun_s) / answers, 2)
    return {"clients": clients, **figures, "cpu_ms": cpu_ms, "memory_mb": [round(begun_mb), round(ended_mb)]}


def measure_library(engine: Engine, questions: list[str], seconds: float) -> Figures:
    """Return what as many threads get of the library as it has connections."""
    tenant, threads = engine.tenant("acme"), engine.settings.database.pool_size

    def once(number: int, turn: int) -> int:
        tenant.search(questions[(number * 7 + turn) % len(questions)])
        return 200

    return {"threads": threads, **_ask(threads, seconds, once)}


def measure(engine: Engine, folder: str, questions: list[str], arguments: argparse.Namespace) -> Figures:
    """Measure one question at a time, then many at once, of one system after the other."""
    names = ["service"]
    with ExitStack() as stack:
        servers = {"service": stack.enter_context(run_service(folder, quick=arguments.quick))}
        if not arguments.quick and (python := _interpreter_of_peers()) is not None:
            servers["langchain"] = stack.enter_context(peer(python, folder, _texts(engine)))
            names.append("langchain")
        figures = measure_in_turn(
            engine, {name: url for name, (url, _) in servers.items()}, questions, arguments.rounds
        )
        many = {name: measure_http([servers[name]], questions, arguments.clients, arguments.seconds) for name in names}
        if arguments.processes > 1:
            others = [
                stack.enter_context(run_service(folder, quick=arguments.quick)) for _ in range(arguments.processes - 1)
            ]
            several = measure_http([servers["service"], *others], questions, arguments.clients, arguments.seconds)
            many[f"{arguments.processes} services"] = several
        return figures | {"at_once": {"library": measure_library(engine, questions, arguments.seconds), **many}}


def _interpreter_of_peers() -> Path | None:
    """Return what the peer runs in; None, and say so, where it is not there."""
    python = children.environment()
    needed = [str(python), "-c", "import fastapi, langchain_postgres, uvicorn"]
    if python is not None and subprocess.run(needed, capture_output=True).returncode == 0:
        return python
    print(
        "LangChain is left out: its environment lacks FastAPI, or is not there; `make bench` makes it", file=sys.stderr
    )
    return None


def _texts(engine: Engine) -> list[str]:
    with psycopg.connect(engine.database.admin_conninfo) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM kosmos.chunks ORDER BY id")]


def verdicts(figures: Figures) -> dict[str, bool]:
    """Return which targets are met."""
    many = figures["at_once"]["service"]
    return {
        f"p50 of /v1/search is at most {ADDED_P50_MS:g} ms above the library's": (
            figures["service"]["p50_ms"] <= figures["library"]["p50_ms"] + ADDED_P50_MS
        ),
        "many clients: no error but 429 and 503": many["errors"] == 0,
        f"many clients: p99 below {SPREAD:g} times the p50": many["p99_ms"] < SPREAD * many["p50_ms"],
    }


def main() -> None:
    """Measure, and print what was found."""
    parser = command(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parse(parser, rounds=1, clients=4, seconds=0.3, processes=1)
    questions = [
        entry["question"] for entry in yaml.safe_load((EXAMPLES / "questions.yaml").read_text(encoding="utf-8"))
    ][:: 10 if arguments.quick else 1]
    folder = str(temporary_folder() / "data")
    settings = Settings.load(overrides={**MODEL, "database.data_dir": folder})
    with Engine(settings, embedder=embedder(settings, quick=arguments.quick)) as engine:
        engine.tenant("acme").ingest(EXAMPLES / "knowledge_base")
        figures = measure(engine, folder, questions, arguments)
    results = figures | {"targets": verdicts(figures)}
    print(json.dumps(results, indent=2))
    write_results(arguments.json, results)


if __name__ == "__main__":
    main()
