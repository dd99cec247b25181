"""Train a small cross-encoder, and measure it on queries held out from training.

    python -m benchmarks.reranker.train [--data FOLDER] [--output FOLDER] [--json FILE] [--quick]

It is trained on the titles of Cranfield's documents, without judgements, and then twice on one half of the judged
queries. It is measured on the other half, through the library's own rerank stage. CACM is measured with the model of
the first half, unchanged. `blend` is the mean of relevance and fused score with the named weights, each scaled to its
own best and worst. A quick run uses sections of examples/ for both sets.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track

from benchmarks.beir import EvaluationSet, load
from benchmarks.command import DATASETS, command, parse, temporary_folder, write_results
from benchmarks.command import MODEL as MINILM
from benchmarks.quick import embedder, write_evaluation_set
from benchmarks.reranker.compare import Run, compare
from benchmarks.reranker.examples import Ranking, rank_for_title, rank_judged
from benchmarks.reranker.model import build, learn, save
from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Passage
from kosmos_rag.models.onnx import Precision
from kosmos_rag.models.reranking.cross_encoder import CrossEncoderReranker

SEED = 0
RERANKED = 20
FIRST_STAGE_CHUNKS = 30
TRAINING_CHUNKS = 50
TITLES = 300
TITLE_LENGTH, TITLE_TOKENS = 8, 128
JUDGED_LENGTH, JUDGED_TOKENS, EPOCHS = 12, 160, 2
RATE = 5e-5
READ_TOKENS = 256
BLENDS = (0.3, 0.5, 0.7)
"""Weights of the relevance."""

MODEL = {**MINILM, "models.backend": "onnx"}

Hits = Mapping[str, Sequence[Passage]]
"""What was retrieved, by query."""


def _ingest(engine: Engine, data: EvaluationSet) -> Tenant:
    tenant = engine.tenant(data.name)
    report = tenant.ingest(
        SourceDocument(source=key, title=title or None, data=text.encode())
        for key, (title, text) in data.documents.items()
    )
    if report.failed:
        raise SystemExit(f"{len(report.failed)} documents failed, the first: {report.failed[0]}")
    return tenant


def _hits(tenant: Tenant, questions: Mapping[str, str], k: int, label: str) -> dict[str, tuple[Passage, ...]]:
    return {key: tenant.search(question, k).hits for key, question in track(questions.items(), description=label)}


def _run(hits: Hits) -> Run:
    """Return documents by their best chunk."""
    return {query: list(dict.fromkeys(hit.source for hit in passages)) for query, passages in hits.items()}


def _blend(hits: Hits, weight: float) -> Run:
    blended: dict[str, list[Passage]] = {}
    for query, passages in hits.items():
        relevance = np.array([hit.rerank_score for hit in passages])
        fused = np.array([hit.fused_score for hit in passages])
        scores = weight * _scale(relevance) + (1 - weight) * _scale(fused)
        blended[query] = [passages[at] for at in np.argsort(-scores, kind="stable")]
    return _run(blended)


def _scale(scores: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = (scores - scores.min()) / max(float(np.ptp(scores)), 1e-9)
    return scaled


def halves(queries: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split queries in two by chance, the same way each time."""
    order = np.random.default_rng(SEED).permutation(len(queries))
    return [queries[at] for at in order[::2]], [queries[at] for at in order[1::2]]


def _titles(data: EvaluationSet, tenant: Tenant, count: int) -> list[Ranking]:
    draw = np.random.default_rng(SEED)
    chosen = draw.permutation([key for key, (title, _) in data.documents.items() if title])[:count]
    questions = {str(key): data.documents[str(key)][0] for key in chosen}
    hits_by_title = _hits(tenant, questions, FIRST_STAGE_CHUNKS, "titles asked")
    rankings = [rank_for_title(questions[key], hits, key, TITLE_LENGTH, draw) for key, hits in hits_by_title.items()]
    return [ranking for ranking in rankings if ranking]


def _rank_judged(data: EvaluationSet, hits: Hits, queries: Sequence[str]) -> list[Ranking]:
    draw = np.random.default_rng(SEED)
    rankings = [
        rank_judged(data.queries[query], hits[query], data.qrels[query], JUDGED_LENGTH, draw)
        for _ in range(EPOCHS)
        for query in draw.permutation(queries).tolist()
    ]
    return [ranking for ranking in rankings if ranking]


def train(data: EvaluationSet, tenant: Tenant, hits: Hits, folder: Path, *, titles: int) -> dict[str, float]:
    """Write a model for each half of the queries, trained on that half; return what it took."""
    torch.manual_seed(SEED)
    made_of_titles = _titles(data, tenant, titles)
    started = time.perf_counter()
    model = build()
    learn(model, made_of_titles, rate=RATE, max_tokens=TITLE_TOKENS, label="training on titles")
    common = {name: weight.clone() for name, weight in model.state_dict().items()}
    pairs = sum(len(ranking.passages) for ranking in made_of_titles)
    save(model, folder / "titles", max_tokens=READ_TOKENS)
    for number, half in enumerate(halves(list(data.queries))):
        model.load_state_dict(common)
        rankings = _rank_judged(data, hits, half)
        learn(model, rankings, rate=RATE, max_tokens=JUDGED_TOKENS, label=f"training on half {number}")
        save(model, folder / f"half-{number}", max_tokens=READ_TOKENS)
        pairs += sum(len(ranking.passages) for ranking in rankings)
    return {"training_seconds": round(time.perf_counter() - started, 1), "training_pairs": pairs}


class Reranked:
    """The library's rerank stage with a model of ours, over a database that holds the documents already."""

    def __init__(self, settings: Settings, model: Embedder) -> None:
        self._settings = settings
        self._model = model

    def hits(
        self,
        data: EvaluationSet,
        queries: Sequence[str],
        model: Path,
        *,
        precision: Precision = "full",
        max_tokens: int = READ_TOKENS,
    ) -> dict[str, tuple[Passage, ...]]:
        """Return what remains in reranked order, all of it."""
        reranking = self._settings.rag.reranking.model_copy(
            update={
                "enabled": True,
                "model": str(model),
                "threshold": 0.0,
                "precision": precision,
                "max_tokens": max_tokens,
                "deadline_ms": 600_000,
            }
        )
        rag = self._settings.rag.model_copy(update={"reranking": reranking})
        reranker = CrossEncoderReranker(reranking, self._settings.models)
        questions = {query: data.queries[query] for query in queries}
        changed = self._settings.model_copy(update={"rag": rag})
        with Engine(changed, embedder=self._model, reranker=reranker) as engine:
            hits_by_query = _hits(
                engine.tenant(data.name), questions, RERANKED, f"reranked by {model.name}, {precision}"
            )
        if any(hit.rerank_score is None for hits in hits_by_query.values() for hit in hits):
            raise SystemExit("the rerank stage was skipped for a question: there is nothing to compare")
        return hits_by_query


def _rows(hits: Hits, base: Run, data: EvaluationSet) -> dict[str, dict[str, float]]:
    """Return the figures of the reranked order and of its blends, compared with the first stage's order."""
    runs = {"reranked": _run(hits)} | {f"blend {weight}": _blend(hits, weight) for weight in BLENDS}
    first = {query: base[query] for query in hits}
    return {name: compare(run, first, data.qrels).row() for name, run in {"first stage": first, **runs}.items()}


def _agreement(hits: Hits, other: Hits) -> float:
    """Return the mean rank correlation of two models' scores of the same chunks (Spearman)."""
    correlations = []
    for query, passages in hits.items():
        place = {hit.chunk_id: rank for rank, hit in enumerate(other[query])}
        ranks = np.array([place[hit.chunk_id] for hit in passages])
        correlations.append(np.corrcoef(np.arange(len(ranks)), ranks)[0, 1])
    return round(float(np.mean(correlations)), 4)


def measure(data: EvaluationSet, base: Run, reranked: Reranked, folder: Path) -> dict[str, Any]:
    """Return the figures of the held-out halves, of cheaper ways to run the models, and of the untrained one."""

    def held_out(**options: Any) -> dict[str, tuple[Passage, ...]]:
        first, second = halves(list(data.queries))
        return reranked.hits(data, second, folder / "half-0", **options) | reranked.hits(
            data, first, folder / "half-1", **options
        )

    full = held_out()
    rows = _rows(full, base, data)
    titles = reranked.hits(data, list(data.queries), folder / "titles")
    rows["without judgements"] = compare(_run(titles), base, data.qrels).row()
    agreement = {}
    cheaper: dict[str, dict[str, Any]] = {"int8": {"precision": "int8"}, "128 tokens": {"max_tokens": 128}}
    for name, options in cheaper.items():
        other = held_out(**options)
        rows[f"reranked, {name}"] = compare(_run(other), base, data.qrels).row()
        agreement[name] = _agreement(full, other)
    return {"set": data.name, "queries": len(data.queries), "rows": rows, "rank_correlation_with_full": agreement}


def _print(result: dict[str, Any]) -> None:
    columns = list(next(iter(result["rows"].values())))
    print(f"\n{result['set']}, {result['queries']} queries\n{'':<22}" + "".join(f"{name:>11}" for name in columns))
    for name, figures in result["rows"].items():
        print(f"{name:<22}" + "".join(f"{value:>11}" for value in figures.values()))


def run(settings: Settings, folder: Path, sets: Path, *, quick: bool = False) -> dict[str, Any]:
    """Train on Cranfield; measure there and on CACM."""
    model = embedder(settings, quick=quick)
    reranked = Reranked(settings, model)
    cranfield, cacm = load(sets / "cranfield"), load(sets / "cacm")
    with Engine(settings, embedder=model) as engine:
        tenant = _ingest(engine, cranfield)
        hits = _hits(tenant, cranfield.queries, TRAINING_CHUNKS, "first stage")
        took = train(cranfield, tenant, hits, folder, titles=2 if quick else TITLES)
        base = _run({query: passages[:FIRST_STAGE_CHUNKS] for query, passages in hits.items()})
        results = [measure(cranfield, base, reranked, folder)]
        _print(results[0])
        other = _ingest(engine, cacm)
        base = _run(_hits(other, cacm.queries, FIRST_STAGE_CHUNKS, "first stage"))
    rows = _rows(reranked.hits(cacm, list(cacm.queries), folder / "half-0"), base, cacm)
    results.append({"set": cacm.name, "queries": len(cacm.queries), "rows": rows})
    _print(results[1])
    return {**took, "reranked_chunks": RERANKED, "results": results}


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "reranker.json")
    parser.add_argument("--data", type=Path, default=DATASETS, metavar="FOLDER", help="holds cranfield and cacm")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="keep the models here")
    scratch = temporary_folder()
    arguments = parse(parser, data=scratch / "sets")
    if arguments.data == scratch / "sets":
        for name in ("cranfield", "cacm"):
            write_evaluation_set(arguments.data / name, questions=4)
    settings = Settings.load(overrides={**MODEL, "database.data_dir": str(scratch / "database")})
    figures = run(settings, arguments.output or scratch / "models", arguments.data, quick=arguments.quick)
    write_results(arguments.json, figures)


if __name__ == "__main__":
    main()
