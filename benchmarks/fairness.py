"""Measure the requests of one tenant while others attack the service.

    python -m benchmarks.fairness [--seconds N] [--json FILE] [--quick]

The victim asks questions of examples/ one after another, first without load, then under each attack in turn: 30 clients
of another tenant with questions of 9 KB, 200 connections with invented keys, 200 that send headers one byte at a time,
and 600 that send half a header. At the end it asks without load again. The targets refer to the lower of the two p95,
since a service is slower after its start. Attackers run in a process of their own and repeat after each response. The
liveness check runs on the health port during all attacks. Run the benchmark on a machine without other work.
"""

import asyncio
import json
import multiprocessing
import socket
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import yaml

from benchmarks.command import EXAMPLES, MODEL, command, parse, temporary_folder, write_results
from benchmarks.quick import embedder
from benchmarks.service import run_server, summarize
from kosmos_rag import Engine, Settings

UNDER_ATTACK, HALF_OPEN = 2.0, 1.5
"""Targets: the victim's p95 by its quiet one."""
LONG_QUESTION_BYTES = 9_000
_PAUSE_S = 0.02
"""Between two questions of the victim, and before an attacker that was refused begins again."""
_SETTLE_S = 2.0
"""From the beginning of an attack to the first question that counts."""
_HALF = b"GET /livez HTTP/1.1\r\nhost: x\r\nx-pad: "

Figures = dict[str, Any]
Attack = Callable[[str, str], Awaitable[None]]
"""One client of an attack without end, by the address of the service and the attacker's key."""


async def ask_long_questions(url: str, key: str) -> None:
    """Ask questions of 9 KB."""
    words = " ".join(uuid.uuid4().hex for _ in range(LONG_QUESTION_BYTES // 33))
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        while True:
            await _try(client.post("/v1/search", json={"question": f"{uuid.uuid4().hex} {words}"}))


async def make_up_keys(url: str, _: str) -> None:
    """Send another made-up key with each request."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        while True:
            headers = {"authorization": f"Bearer kosmos.victim.{uuid.uuid4().hex}.{'a' * 43}"}
            await _try(client.post("/v1/search", json={"question": "Why?"}, headers=headers))


async def _try(request: Awaitable[httpx.Response]) -> None:
    try:
        if (await request).status_code == 503:
            await asyncio.sleep(_PAUSE_S)
    except httpx.HTTPError:
        await asyncio.sleep(_PAUSE_S)


async def trickle_headers(url: str, _: str) -> None:
    """Send a byte of a header each second."""
    await _hold_open(url, b"x", 1.0)


async def leave_half_open(url: str, _: str) -> None:
    """Send half a header, and nothing more."""
    await _hold_open(url, b"", 1.0)


async def _hold_open(url: str, data: bytes, pause_s: float) -> None:
    host, port = url.removeprefix("http://").split(":")
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(_HALF)
            while not reader.at_eof():
                writer.write(data)
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), pause_s)
            writer.close()
        except OSError:
            await asyncio.sleep(_PAUSE_S)


ATTACKS: dict[str, tuple[Attack, int, float]] = {
    "long_questions": (ask_long_questions, 30, UNDER_ATTACK),
    "made_up_keys": (make_up_keys, 200, UNDER_ATTACK),
    "slow_headers": (trickle_headers, 200, UNDER_ATTACK),
    "half_open": (leave_half_open, 600, HALF_OPEN),
}
"""Each with its clients and its target."""


def _attack(name: str, clients: int, url: str, key: str) -> None:
    attack = ATTACKS[name][0]

    async def run() -> None:
        await asyncio.gather(*(attack(url, key) for _ in range(clients)))

    asyncio.run(run())


@contextmanager
def run_attack(name: str, clients: int, url: str, key: str) -> Iterator[None]:
    """Attack the service until the block ends."""
    process = multiprocessing.get_context("spawn").Process(target=_attack, args=(name, clients, url, key))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def measure(url: str, health_url: str, key: str, questions: list[str], seconds: float) -> Figures:
    """Return the victim's times and statuses, and those of liveness."""
    times: list[float] = []
    statuses: Counter[int] = Counter()
    live: Counter[int] = Counter()
    until = time.monotonic() + seconds

    def probe() -> None:
        while time.monotonic() < until:
            live[_status(f"{health_url}/livez")] += 1
            time.sleep(0.5)

    probing = threading.Thread(target=probe)
    probing.start()
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        while time.monotonic() < until or len(times) < 2:
            began = time.perf_counter()
            status = _post(client, f"{questions[len(times) % len(questions)]} {len(times)}")
            times.append((time.perf_counter() - began) * 1000)
            statuses[status] += 1
            time.sleep(_PAUSE_S)
    probing.join()
    return {**summarize(times), "requests": len(times), "statuses": dict(statuses), "liveness": dict(live)}


def _post(client: httpx.Client, question: str) -> int:
    try:
        return client.post("/v1/search", json={"question": question}).status_code
    except httpx.HTTPError:
        return 0


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code
    except httpx.HTTPError:
        return 0


def measure_attacks(folder: str, keys: dict[str, str], questions: list[str], *, seconds: float, quick: bool) -> Figures:
    """Serve, and measure the victim in quiet and under each attack."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        health_port = free.getsockname()[1]
    rates = {"service.rates.tenant_per_minute": 0, "service.rates.subject_per_minute": 0}
    settings = {**MODEL, **rates, "database.data_dir": folder, "service.health_port": health_port}
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    module = "benchmarks.service_quick" if quick else "kosmos_rag"
    results: Figures = {}
    with run_server(sys.executable, "-m", module, "serve", *options) as (url, _):
        health_url = f"http://127.0.0.1:{health_port}"
        measure(url, health_url, keys["victim"], questions, min(_SETTLE_S, seconds))  # to warm up
        results["quiet"] = measure(url, health_url, keys["victim"], questions, seconds)
        for name, (_, clients, _) in ATTACKS.items():
            with run_attack(name, max(2, clients // 50) if quick else clients, url, keys["attacker"]):
                time.sleep(min(_SETTLE_S, seconds))
                results[name] = measure(url, health_url, keys["victim"], questions, seconds)
        time.sleep(min(_SETTLE_S, seconds))
        results["quiet after"] = measure(url, health_url, keys["victim"], questions, seconds)
    return results


def check_targets(results: Figures) -> dict[str, bool]:
    """Return which targets are met."""
    quiet_p95 = min(results[name]["p95_ms"] for name in ("quiet", "quiet after"))
    targets = {}
    for name, (_, _, most) in ATTACKS.items():
        figures = results[name]
        targets[f"{name}: p95 at most {most:g} times the quiet one"] = figures["p95_ms"] <= most * quiet_p95
        targets[f"{name}: every request is answered"] = set(figures["statuses"]) == {200}
        targets[f"{name}: liveness answers throughout"] = set(figures["liveness"]) == {200}
    return targets


def main() -> None:
    """Measure, and print the figures."""
    parser = command(__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parse(parser, seconds=0.3)
    entries = yaml.safe_load((EXAMPLES / "questions.yaml").read_text(encoding="utf-8"))
    questions = [entry["question"] for entry in entries]
    folder = str(temporary_folder() / "data")
    settings = Settings.load(overrides={**MODEL, "database.data_dir": folder})
    with Engine(settings, embedder=embedder(settings, quick=arguments.quick)) as engine:
        keys = {}
        for name in ("victim", "attacker"):
            engine.tenant(name).ingest(EXAMPLES / "knowledge_base")
            keys[name] = engine.tenant(name).api_keys.create(name, scopes=["read"])
        results = measure_attacks(folder, keys, questions, seconds=arguments.seconds, quick=arguments.quick)
    results["targets"] = check_targets(results)
    print(json.dumps(results, indent=2))
    write_results(arguments.json, results)


if __name__ == "__main__":
    main()
