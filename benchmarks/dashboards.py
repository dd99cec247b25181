"""Draw the picture of docs/observability.md from a minute of questions and documents.

    python -m benchmarks.dashboards [--seconds N] [--picture FILE] [--quick]

An engine over the documents of examples/ answers questions at a varying rate, and ingests at the same time. Its metrics
are read twice a second, as Prometheus would, and drawn as in the panels of the same names: rates and quantiles over the
last ten seconds.
"""

import itertools
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.command import EXAMPLES, command, parse, temporary_folder
from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.telemetry.metrics import (
    ANSWER_SECONDS,
    CACHE_LOOKUPS,
    INGESTION_EMBEDDED_DOCUMENTS,
    INGESTION_STAGE_SECONDS,
    POOL_CONNECTIONS,
    RETRIEVAL_STAGE_SECONDS,
    Metric,
)
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver
from kosmos_rag.models.testing.hashing import HashingEmbedder

WINDOW_S = 10.0
EVERY_S = 0.5
STAGES = ("embed", "plan", "dense", "lexical", "fuse", "fetch")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scrape:
    """Every sample at one time."""

    at: float
    samples: Samples


def scrape(observer: PrometheusObserver, began: float) -> Scrape:
    """Read all samples."""
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in observer.registry.collect()
        for sample in family.samples
    }
    return Scrape(at=time.monotonic() - began, samples=samples)


class Series:
    """Scrapes, and what PromQL would make of them."""

    def __init__(self, scrapes: Sequence[Scrape]) -> None:
        self._scrapes = scrapes
        self.times = [scrape.at for scrape in scrapes]

    def value(self, metric: Metric, **labels: str) -> list[float]:
        """Return a gauge."""
        return [scrape.samples.get((metric.name, tuple(sorted(labels.items()))), 0.0) for scrape in self._scrapes]

    def rate(self, name: str, **labels: str) -> list[float]:
        """Return by how much a counter grew in a second."""
        key = name, tuple(sorted(labels.items()))
        return [
            (now.samples.get(key, 0.0) - before.samples.get(key, 0.0)) / max(now.at - before.at, EVERY_S)
            for before, now in self._windows()
        ]

    def quantile(self, metric: Metric, share: float, **labels: str) -> list[float]:
        """Return a quantile of a histogram, as `histogram_quantile` has it."""
        bounds = [*metric.buckets, math.inf]
        rates = [
            self.rate(f"{metric.name}_bucket", **labels, le="+Inf" if math.isinf(bound) else str(float(bound)))
            for bound in bounds
        ]
        return [_quantile(share, bounds, counts) for counts in zip(*rates, strict=True)]

    def _windows(self) -> list[tuple[Scrape, Scrape]]:
        return [
            (next(scrape for scrape in self._scrapes if scrape.at >= now.at - WINDOW_S), now) for now in self._scrapes
        ]


def _quantile(share: float, bounds: Sequence[float], upto: Sequence[float]) -> float:
    if upto[-1] <= 0:
        return math.nan
    target = share * upto[-1]
    place = next(number for number, count in enumerate(upto) if count >= target)
    low, below = (bounds[place - 1], upto[place - 1]) if place else (0.0, 0.0)
    if math.isinf(bounds[place]):
        return low
    return low + (bounds[place] - low) * (target - below) / max(upto[place] - below, 1e-12)


def _ratio(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [value / divisor if divisor else math.nan for value, divisor in zip(above, below, strict=True)]


def _ask_until(tenant: Tenant, questions: Sequence[str], ended: threading.Event) -> None:
    for number, question in enumerate(itertools.cycle(questions)):
        if ended.wait(0.02 + 0.1 * (1 + math.sin(time.monotonic() / 6))):
            return
        # Some are asked for the first time: their vectors are not kept.
        text = question if number % 3 else f"{question} {number}"
        if number % 4:
            tenant.search(text)
        else:
            tenant.answer(text)


def _ingest_until(tenant: Tenant, texts: Sequence[bytes], ended: threading.Event) -> None:
    for number, text in enumerate(itertools.cycle(texts)):
        if ended.wait(1.0):
            return
        copy = SourceDocument(source=f"copy-{number}", data=text + f"\n\nCopy {number}.".encode())
        if failed := tenant.ingest(copy).failed:
            raise RuntimeError(str(failed[0]))


def record(seconds: float) -> Series:
    """Let an engine work for so long, and return what its metrics were."""
    questions = [entry["question"] for entry in yaml.safe_load((EXAMPLES / "questions.yaml").read_text("utf-8"))]
    texts = [file.read_bytes() for file in sorted((EXAMPLES / "knowledge_base").rglob("*.md"))]
    ended, observer = threading.Event(), PrometheusObserver()
    folder = str(temporary_folder())
    settings = Settings.load(overrides={"database.data_dir": folder, "rag.reranking.enabled": False})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        tenant = engine.tenant("acme")
        tenant.ingest(EXAMPLES / "knowledge_base")
        engine.observe(observer)
        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(_ask_until, tenant, questions, ended) for _ in range(3)]
            working.append(pool.submit(_ingest_until, engine.tenant("other"), texts, ended))
            began, scrapes = time.monotonic(), []
            try:
                while time.monotonic() - began < seconds and not any(future.done() for future in working):
                    scrapes.append(scrape(observer, began))
                    time.sleep(EVERY_S)
            finally:
                ended.set()  # or the pool would wait for them for ever
            for future in working:
                future.result()  # what went wrong is no picture
    return Series(scrapes)


def draw(series: Series, picture: Path) -> None:
    """Draw the panels."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    total = series.rate(f"{RETRIEVAL_STAGE_SECONDS.name}_count", stage="total")
    embedded = series.rate(f"{INGESTION_EMBEDDED_DOCUMENTS.name}_total")
    spent = f"{RETRIEVAL_STAGE_SECONDS.name}_sum"
    panels: dict[str, dict[str, list[float]]] = {
        "Search duration, ms": {
            f"P{share * 100:g}": _ms(series.quantile(RETRIEVAL_STAGE_SECONDS, share, stage="total"))
            for share in (0.5, 0.95, 0.99)
        },
        "Stages, P50, ms": {stage: _ms(series.quantile(RETRIEVAL_STAGE_SECONDS, 0.5, stage=stage)) for stage in STAGES},
        "Time by stage, share": {
            stage: _ratio(series.rate(spent, stage=stage), series.rate(spent, stage="total")) for stage in STAGES
        },
        "Searches per second": {"searches": total},
        "Answer duration, P50, ms": {
            stage: _ms(series.quantile(ANSWER_SECONDS, 0.5, stage=stage)) for stage in ("first_token", "total")
        },
        "Cache hit ratio of question vectors": {"question_vectors": _hits(series, "question_vectors")},
        "Connections": {
            state: series.value(POOL_CONNECTIONS, role="kosmos_app", state=state) for state in ("used", "idle")
        },
        "Ingestion time by stage, ms": {
            stage: _ms(_ratio(series.rate(f"{INGESTION_STAGE_SECONDS.name}_total", stage=stage), embedded))
            for stage in ("chunk", "embed", "write")
        },
    }
    figure, axes = pyplot.subplots(4, 2, figsize=(11, 11), sharex=True, layout="constrained")
    for (title, lines), panel in zip(panels.items(), axes.flat, strict=True):
        _panel(panel, title, series.times, lines)
    for panel in axes[-1]:
        panel.set_xlabel("seconds")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=90)
    pyplot.close(figure)


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1000 * value for value in seconds]


def _hits(series: Series, cache: str) -> list[float]:
    hits, misses = (
        series.rate(f"{CACHE_LOOKUPS.name}_total", cache=cache, outcome=outcome) for outcome in ("hit", "miss")
    )
    return _ratio(hits, [hit + miss for hit, miss in zip(hits, misses, strict=True)])


def _panel(panel: Any, title: str, times: Sequence[float], lines: dict[str, list[float]]) -> None:
    for name, values in lines.items():
        panel.plot(times, values, label=name, linewidth=1.4)
    panel.set_title(title, loc="left", fontsize=10)
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, loc="upper right")


def main() -> None:
    """Record and draw."""
    parser = command(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--picture", type=Path, default=Path("docs/images/dashboards.png"))
    arguments = parse(parser, seconds=1.0, picture=temporary_folder() / "dashboards.png")
    draw(record(arguments.seconds), arguments.picture)
    print(f"picture: {arguments.picture}")


if __name__ == "__main__":
    main()
