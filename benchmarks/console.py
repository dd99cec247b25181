"""Measure the server time of the pages of the console.

    python -m benchmarks.console [--documents N] [--rounds N] [--json FILE] [--quick]

The time is from the request to the complete HTML. The application is called within this process, one request at a time
and without a network. A page is sent as a whole. The first request of each page fills caches and is not counted. Pages
take turns in each round, so other load affects all of them. CPU is that of this process, without PostgreSQL's.
"""

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.command import MODEL, command, parse, temporary_folder, write_results
from kosmos_rag import AsyncEngine, Engine, Settings, SourceDocument
from kosmos_rag.apps.http.app import create_app
from kosmos_rag.apps.http.toolkit.service import create_service
from kosmos_rag.evaluation.offline.types import percentile
from kosmos_rag.models.testing.hashing import HashingEmbedder

TARGET_MS = 100
_PAGES = (
    "/",
    "/inspector",
    "/documents",
    "/jobs",
    "/evaluations",
    "/monitor",
    "/health",
    "/sign-in",
    "/docs",
    "/no/such/page",
)


def documents(count: int) -> list[SourceDocument]:
    """Return documents of forty paragraphs each."""
    documents = []
    for number in range(count):
        rules = "\n\n".join(f"Rule {rule} of handbook {number}." for rule in range(40))
        source = f"department-{number % 7}/handbook-{number}.md"
        documents.append(SourceDocument(source=source, data=f"# Handbook {number}\n\n{rules}\n".encode()))
    return documents


async def measure(engine: Engine, rounds: int) -> dict[str, dict[str, float]]:
    """Return p50, p95 and CPU in milliseconds, and bytes, by page.

    Args:
        engine: engine with the documents of the tenant `acme`.
        rounds: counted requests of each page.
    """
    (document,) = engine.tenant("acme").documents(limit=1)
    pages = {path: path for path in _PAGES} | {"/documents/{id}": f"/documents/{document.id}"}
    seconds: dict[str, list[float]] = {name: [] for name in pages}
    cpu: dict[str, list[float]] = {name: [] for name in pages}
    sizes: dict[str, int] = {}
    app = create_app(create_service(AsyncEngine(engine)))
    transport = httpx.ASGITransport(app)
    headers = {"accept": "text/html"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        for is_counted in (False, *(True,) * rounds):
            for name, path in pages.items():
                started, cpu_started = time.perf_counter(), time.process_time()
                response = await client.get(path)
                elapsed, cpu_elapsed = time.perf_counter() - started, time.process_time() - cpu_started
                expected = 404 if name == "/no/such/page" else 200
                if response.status_code != expected or not response.text.rstrip().endswith("</html>"):
                    raise SystemExit(f"{path} is no complete page: status {response.status_code}")
                if is_counted:
                    seconds[name].append(elapsed)
                    cpu[name].append(cpu_elapsed)
                    sizes[name] = len(response.content)
    return {
        name: {
            "p50_ms": 1000 * statistics.median(seconds[name]),
            "p95_ms": 1000 * percentile(seconds[name], 0.95),
            "cpu_ms": 1000 * statistics.fmean(cpu[name]),
            "bytes": sizes[name],
        }
        for name in pages
    }


def table(figures: Mapping[str, Mapping[str, float]]) -> Sequence[str]:
    """Return the lines of the table."""
    lines = ["| page | p50 ms | p95 ms | CPU ms | kB |", "|---|---|---|---|---|"]
    for name, figure in figures.items():
        numbers = (
            f"{figure['p50_ms']:.1f} | {figure['p95_ms']:.1f} | {figure['cpu_ms']:.1f} | {figure['bytes'] / 1000:.1f}"
        )
        lines.append(f"| `{name}` | {numbers} |")
    slowest = max(figures, key=lambda name: figures[name]["p95_ms"])
    verdict = "met" if figures[slowest]["p95_ms"] < TARGET_MS else "missed"
    return [*lines, "", f"p95 under {TARGET_MS} ms: {verdict}; the slowest page is {slowest}"]


def settings(folder: Path) -> Settings:
    """Return the settings of a service without a sign-in."""
    overrides: dict[str, Any] = {
        **MODEL,
        "database.data_dir": str(folder),
        "service.development.tenant": "acme",
        "service.rates.subject_per_minute": 0,
    }
    return Settings.load(overrides=overrides)


def main() -> None:
    """Measure, and print the table."""
    parser = command(__doc__, "console.json")
    parser.add_argument("--documents", type=int, default=2000, help="documents of the tenant")
    parser.add_argument("--rounds", type=int, default=100, help="counted requests of each page")
    arguments = parse(parser, documents=5, rounds=2)
    with Engine(settings(temporary_folder()), embedder=HashingEmbedder(dimensions=384)) as engine:
        engine.tenant("acme").ingest(documents(arguments.documents))
        engine.tenant("acme").indexes.build()
        figures = asyncio.run(measure(engine, arguments.rounds))
    print("\n".join(table(figures)))
    write_results(arguments.json, figures)


if __name__ == "__main__":
    main()
