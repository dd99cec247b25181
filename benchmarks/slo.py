"""Measure the targets of the project, each with its alert threshold.

    python -m benchmarks.slo [--chunks N] [--rounds N] [--data FOLDER] [--backend onnx|torch] [--json FILE]
                             [--set KEY=VALUE ...] [--quick]

Retrieval is measured on one tenant of natural chunks (benchmarks/scale) with the vector index that maintenance builds.
Each question is embedded by all-MiniLM-L6-v2, or the model that `--set rag.embedding.model` names. Reranking has a row
of its own: a cross-encoder of the shape of ms-marco-MiniLM-L-6 with random weights, on twenty passages. Embedding,
Recall@10 and MRR are of the evaluation set of `--data` (the BEIR layout), with the default settings except the model,
and not reranked. If a question has many relevant documents, no ranking has all of them among ten. So the table also has
Success@10, the share of questions with any.

The last row is the cost of observation: the same questions with prepared vectors, with and without an observer, in
turn.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
from ir_measures import MRR, R, Success

from benchmarks.beir import EvaluationSet, load
from benchmarks.command import DATASETS, MODEL, command, parse, temporary_folder, write_results
from benchmarks.quick import WordReranker, embedder, write_evaluation_set
from benchmarks.reranker.latency import build_model, passages
from benchmarks.scale.data import NaturalData, natural
from benchmarks.scale.load import LARGEST, Share, publish_all
from benchmarks.scale.measure import Prepared
from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.apps.cli.common import overrides
from kosmos_rag.core.protocols import Embedder, Reranker
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.metrics import INGESTION_EMBEDDED_DOCUMENTS, INGESTION_STAGE_SECONDS
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver
from kosmos_rag.models.embedding.space import PROBE
from kosmos_rag.models.reranking.cross_encoder import CrossEncoderReranker

WARM = 50
QUESTION = "what similarity laws must be obeyed when constructing models of heated aircraft"


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A target, and what was measured."""

    name: str
    measured: float
    target: float
    alert: float
    """Where it alerts; on the same side of the target as what is worse."""
    unit: str = ""

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or `alerts`."""
        worse = 1 if self.alert > self.target else -1
        if worse * (self.measured - self.alert) > 0:
            return "alerts"
        return "met" if worse * (self.measured - self.target) < 0 else "missed"


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def _settings(scratch: Path, arguments: argparse.Namespace, **changes: Any) -> Settings:
    fixed = {"database.data_dir": str(scratch / "postgres"), "models.backend": arguments.backend}
    return Settings.load(overrides={**MODEL, **fixed, **overrides(arguments.set), **changes})


def require_hits(tenant: Tenant, question: str) -> None:
    """Retrieve, and end the benchmark where that is not what is to be timed: nothing is found quickly."""
    result = tenant.search(question)
    if not result.hits or result.degraded_stages or result.cached:
        raise SystemExit(
            f"{question!r}: {result.returned} hits, skipped {result.degraded_stages}, cached {result.cached}"
        )


def retrieval(tenant: Tenant, questions: Sequence[str], rounds: int, warm: int) -> list[float]:
    """Return the milliseconds of each retrieval, some to warm up left out."""
    for question in questions[:warm]:
        require_hits(tenant, question)
    return [_ms(partial(require_hits, tenant, question)) for _ in range(rounds) for question in questions[warm:]]


def quality(settings: Settings, embedder: Embedder, data: EvaluationSet, documents: int | None) -> dict[str, float]:
    """Ingest an evaluation set and ask its questions; return the measures, and the milliseconds to embed a document."""
    observer = PrometheusObserver()
    ingested = dict(islice(data.documents.items(), documents))
    with Engine(settings, embedder=embedder) as engine:
        engine.observe(observer)
        tenant = engine.tenant("quality")
        report = tenant.ingest(
            SourceDocument(source=key, title=title or None, data=text.encode())
            for key, (title, text) in ingested.items()
        )
        if report.failed:
            raise SystemExit(f"{len(report.failed)} documents were not ingested, the first: {report.failed[0]}")
        run = []
        for query_id, question in data.queries.items():
            sources = dict.fromkeys(hit.source for hit in tenant.search(question, 30).hits)
            run += [ir_measures.ScoredDoc(query_id, source, -rank) for rank, source in enumerate(sources)]
    qrels = [ir_measures.Qrel(q, d, grade) for q, judged in data.qrels.items() for d, grade in judged.items()]
    figures = ir_measures.calc_aggregate([R @ 10, MRR @ 10, Success @ 10], qrels, run)
    get = observer.registry.get_sample_value
    seconds = get(f"{INGESTION_STAGE_SECONDS.name}_total", {"stage": "embed"})
    embedded = get(f"{INGESTION_EMBEDDED_DOCUMENTS.name}_total")
    if not seconds or not embedded:
        raise SystemExit("no document was seen to be embedded")
    return {
        "recall_10": figures[R @ 10],
        "mrr": figures[MRR @ 10],
        "success_10": figures[Success @ 10],
        "embedding_ms": 1000 * seconds / embedded,
    }


def measure_reranking(settings: Settings, scratch: Path, texts: list[str], rounds: int, *, quick: bool) -> float:
    """Return the median milliseconds to rerank twenty passages."""
    reranker: Reranker = WordReranker()
    if not quick:
        build_model(scratch / "reranker", layers=6)
        changed = settings.rag.reranking.model_copy(update={"model": str(scratch / "reranker"), "enabled": True})
        reranker = CrossEncoderReranker(changed, settings.models)
    sets = passages(texts)["chunks"]
    times = [_ms(partial(reranker.score, QUESTION, sets[turn % len(sets)])) for turn in range(rounds + 3)]
    return statistics.median(times[3:])


def measure_observation(plain: Tenant, observed: Tenant, questions: Sequence[str], rounds: int) -> dict[str, float]:
    """Return the medians without and with an observer, and the median of what each pair differs by."""
    times: dict[str, list[float]] = {"without": [], "with": []}
    order = [("without", plain), ("with", observed)]
    for turn in range(rounds + 1):
        for number, question in enumerate(questions):
            for name, tenant in order if (turn + number) % 2 else reversed(order):
                # As within the service: each request has a trace, which samples carry along.
                with tracing.start_entry_span("request", []):
                    took = _ms(partial(require_hits, tenant, question))
                if turn:  # the first one warms up
                    times[name].append(took)
    added = statistics.median(after - before for before, after in zip(times["without"], times["with"], strict=True))
    without = statistics.median(times["without"])
    return {
        "questions": len(times["with"]),
        "without_p50_ms": without,
        "with_p50_ms": statistics.median(times["with"]),
        "added_ms": added,
        "added_percent": 100 * added / without,
    }


def large(scratch: Path, arguments: argparse.Namespace, data: NaturalData, embedder: Embedder) -> dict[str, Any]:
    """Publish one large tenant, and ask it."""
    prepared = Prepared({**data.questions, PROBE: embedder.embed_query(PROBE)}, data.dimensions)
    fresh = _settings(scratch, arguments, **{"rag.retrieval.query_embedding_cache": 0})
    # Few sentences give few questions, and some must be left to be timed.
    questions, warm = list(data.questions), min(WARM, len(data.questions) // 2)
    with (
        Engine(fresh, embedder=prepared) as plain,
        Engine(fresh, embedder=prepared) as observed,
        Engine(fresh, embedder=embedder) as whole,
    ):
        share = Share(tenant=LARGEST, chunks=arguments.chunks, percent=100.0)
        publish_all(plain.database, data, [share], prepared, print)
        built = whole.tenant(LARGEST).indexes.build()  # which embeds sentences of chunks to measure with
        if scanned := [index for index in built if index.kind == "none" and index.due is not None]:
            raise SystemExit(f"there is no vector index to be asked: {scanned[0].due}")
        observed.observe(PrometheusObserver())
        times = retrieval(whole.tenant(LARGEST), questions, arguments.rounds, warm)
        cost = measure_observation(plain.tenant(LARGEST), observed.tenant(LARGEST), questions[warm:], arguments.rounds)
    return {
        "p50_ms": statistics.median(times),
        "p99_ms": float(np.percentile(times, 99)),
        "retrievals": len(times),
        "indexes": [asdict(index) for index in built],
        "observing": cost,
    }


def show(objectives: Sequence[Objective], figures: dict[str, Any]) -> None:
    """Print the table."""
    print(f"\n{'':<34}{'measured':>12}{'target':>10}{'alerts':>10}  verdict")
    for objective in objectives:
        alerts = f"{'>' if objective.alert > objective.target else '<'} {objective.alert:g}"
        print(
            f"{objective.name:<34}{f'{objective.measured:.3g} {objective.unit}':>12}{objective.target:>10g}{alerts:>10}"
            f"  {objective.verdict}"
        )
    print(f"Success@10, for comparison: {figures['success_10']:.3f}")
    cost = figures["observing"]
    print(f"\nobserved: P50 {cost['with_p50_ms']:.2f} ms, not observed {cost['without_p50_ms']:.2f} ms; a pair differs")
    print(f"by {cost['added_ms'] * 1000:.0f} µs at the median, {cost['added_percent']:.2f} % (at most 2)")


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "slo.json")
    parser.add_argument("--chunks", type=int, default=100_000, metavar="N", help="of the tenant that is asked")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="times that each question is asked")
    parser.add_argument("--data", type=Path, default=DATASETS / "cranfield", metavar="FOLDER", help="a labelled set")
    parser.add_argument("--documents", type=int, metavar="N", help="only so many of it, to see that it works")
    parser.add_argument("--backend", choices=["onnx", "torch"], default="onnx")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="change a setting")
    scratch = temporary_folder()
    arguments = parse(parser, chunks=200, rounds=1, data=scratch / "examples")
    if arguments.data == scratch / "examples":
        write_evaluation_set(arguments.data)
    settings = _settings(scratch, arguments)
    model = embedder(settings, quick=arguments.quick)
    labelled = load(arguments.data)
    figures: dict[str, Any] = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "chunks": arguments.chunks}
    figures |= {"backend": arguments.backend, "set": labelled.name}
    figures["model"] = settings.rag.embedding.model
    figures |= quality(settings, model, labelled, arguments.documents)
    texts = [text for _, text in labelled.documents.values()]
    figures["reranking_ms"] = measure_reranking(settings, scratch, texts, 5 * arguments.rounds, quick=arguments.quick)
    figures |= large(scratch, arguments, natural([arguments.data], model, scratch), model)
    objectives = [
        Objective(name="retrieval, P50", measured=figures["p50_ms"], target=100, alert=200, unit="ms"),
        Objective(name="retrieval, P99", measured=figures["p99_ms"], target=500, alert=1000, unit="ms"),
        Objective(name="embedding a document, mean", measured=figures["embedding_ms"], target=50, alert=100, unit="ms"),
        Objective(
            name="reranking 20 passages, P50", measured=figures["reranking_ms"], target=100, alert=200, unit="ms"
        ),
        Objective(name=f"Recall@10, {labelled.name}", measured=figures["recall_10"], target=0.8, alert=0.7),
        Objective(name=f"MRR@10, {labelled.name}", measured=figures["mrr"], target=0.6, alert=0.5),
    ]
    show(objectives, figures)
    rows = [asdict(objective) | {"verdict": objective.verdict} for objective in objectives]
    write_results(arguments.json, {**figures, "objectives": rows}, default=str)


if __name__ == "__main__":
    main()
