"""Retrieval quality through the library: each retriever alone, and the ways to fuse them, on sets in the BEIR layout.

    python -m benchmarks.quality [--data FOLDER ...] [--set KEY=VALUE ...] [--json FILE] [--quick]

The command fails if the default is significantly worse than the better retriever alone on one of the sets. Each
document is ingested whole (title and text as one), chunked as the settings say; a document's rank is that of its best
chunk. Figures are means over the judged queries.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import ir_measures
from ir_measures import MRR, R, nDCG

from benchmarks.beir import EvaluationSet, load
from benchmarks.better_retriever import compare_with_better, exit_if_worse
from benchmarks.command import DATASETS, MODEL, command, parse, temporary_folder, write_results
from benchmarks.quick import embedder, write_evaluation_set
from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.apps.cli.common import overrides

MEASURES = [nDCG @ 10, R @ 10, MRR @ 10]
SETS = ("cranfield", "cacm", "xquad/en", "xquad/de", "xquad/es", "xquad/zh")
CHUNKS = 30
"""Hits asked for per question: enough for ten documents. Each retriever proposes as many at least."""

SYNONYMS = Path(__file__).parent / "synonyms.yaml"
DEFAULT, RETRIEVERS = "fused by default", ("dense alone", "lexical alone")
ROWS: dict[str, dict[str, Any]] = {
    "dense alone": {"retrieval.semantic_weight": 1.0, "retrieval.keyword_weight": 0.0},
    "lexical alone": {"retrieval.semantic_weight": 0.0, "retrieval.keyword_weight": 1.0},
    DEFAULT: {},
    "by the question": {"retrieval.weighting": "question"},
    "fixed weights": {"retrieval.weighting": "fixed"},
    ".7/.3": {"retrieval.semantic_weight": 0.7, "retrieval.keyword_weight": 0.3},
    ".7/.3, k 60, fixed": {
        "retrieval.semantic_weight": 0.7,
        "retrieval.keyword_weight": 0.3,
        "retrieval.rrf_k": 60,
        "retrieval.weighting": "fixed",
    },
    "30 candidates": {"retrieval.candidates": CHUNKS},
    "200 candidates": {"retrieval.candidates": 200},
    "prf 0.2": {"retrieval.prf_weight": 0.2},
    "score": {"retrieval.fusion": "score"},
    "score, prf 0.2": {"retrieval.fusion": "score", "retrieval.prf_weight": 0.2},
    "synonyms": {"expansion.synonyms": str(SYNONYMS)},
}
"""Changes of settings under `rag`, by row."""


def _run(scope: Tenant, queries: dict[str, str]) -> tuple[list[Any], list[float]]:
    """Rank documents for each query by their best chunk."""
    run, times = [], []
    for query_id, question in queries.items():
        started = time.perf_counter()
        result = scope.search(question, CHUNKS)
        times.append((time.perf_counter() - started) * 1000)
        documents = dict.fromkeys(place.source for hit in result.hits for place in hit.places)
        run += [ir_measures.ScoredDoc(query_id, source, -rank) for rank, source in enumerate(documents)]
    return run, times


def measure(data: EvaluationSet, configuration: dict[str, Any], *, quick: bool = False) -> dict[str, Any]:
    """Ingest a set into a tenant of its own and measure each row; `configuration` are changed settings."""
    settings = Settings.load(overrides=configuration)
    model = embedder(settings, quick=quick)
    qrels = [ir_measures.Qrel(q, d, grade) for q, judged in data.qrels.items() for d, grade in judged.items()]
    rows: dict[str, dict[str, float]] = {}
    by_question: dict[str, list[float]] = {}
    with Engine(settings, embedder=model) as engine:
        report = engine.tenant("bench").ingest(
            SourceDocument(source=key, title=title or None, data=text.encode())
            for key, (title, text) in data.documents.items()
        )
    if report.failed:
        raise SystemExit(f"{len(report.failed)} documents failed, the first: {report.failed[0]}")
    for name, changes in ROWS.items():
        changed = Settings.load(overrides={**configuration, **{f"rag.{key}": value for key, value in changes.items()}})
        with Engine(changed, embedder=model) as engine:
            run, times = _run(engine.tenant("bench"), data.queries)
        figures = ir_measures.calc_aggregate(MEASURES, qrels, run)
        rows[name] = {str(measure): round(figures[measure], 4) for measure in MEASURES}
        rows[name]["p50_ms"] = round(statistics.median(times), 1)
        values = {metric.query_id: metric.value for metric in ir_measures.iter_calc([MEASURES[0]], qrels, run)}
        by_question[name] = [values.get(query_id, 0.0) for query_id in data.queries]
    return {
        "set": data.name,
        "documents": len(data.documents),
        "queries": len(data.queries),
        "chunks": report.chunks,
        "ingest_seconds": report.seconds,
        "rows": rows,
        "compared": compare_with_better(by_question[DEFAULT], {name: by_question[name] for name in RETRIEVERS}),
    }


def _print(result: dict[str, Any]) -> None:
    print(
        f"\n{result['set']}: {result['documents']} documents, {result['chunks']} chunks "
        f"(ingested in {result['ingest_seconds']:.0f} s), {result['queries']} queries"
    )
    columns = list(next(iter(result["rows"].values())))
    print(f"{'':<20}" + "".join(f"{column:>10}" for column in columns))
    for name, figures in result["rows"].items():
        print(f"{name:<20}" + "".join(f"{figures[column]:>10}" for column in columns))


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "quality.json")
    parser.add_argument("--data", type=Path, action="append", metavar="FOLDER", help="a set; may be repeated")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="change a setting")
    arguments = parse(parser)
    folders = arguments.data or [folder for name in SETS if (folder := DATASETS / name).is_dir()]
    if arguments.quick:
        folders = [write_evaluation_set(temporary_folder() / "examples")]
    if not folders:
        raise SystemExit("no evaluation sets are available; name one: make bench-quality DATA=FOLDER")
    results = []
    for folder in folders:
        changes = {**MODEL, "database.data_dir": str(temporary_folder()), **overrides(arguments.set)}
        results.append(measure(load(folder), changes, quick=arguments.quick))
        _print(results[-1])
    write_results(arguments.json, {"settings": arguments.set or [], "results": results})
    if not arguments.quick:
        exit_if_worse({result["set"]: result["compared"] for result in results})


if __name__ == "__main__":
    main()
