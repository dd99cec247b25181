"""Measure questions through the public API: time, recall and throughput."""

import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.data import MADE, ZipfData
from benchmarks.scale.load import Share
from kosmos_rag import Engine, KosmosError, SearchResult, Settings, Tenant
from kosmos_rag.core.config import EmbeddingSettings, ModelsSettings
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.embedding.space import PROBE
from kosmos_rag.models.packaged import MINILM
from kosmos_rag.models.testing.hashing import HashingEmbedder

DEPTH = 100
LEXICAL, DENSE, BOTH = "lexical", "dense", "both"
ONLY: dict[str, dict[str, Any]] = {
    # The reference has no close terms, and folds no copies.
    LEXICAL: {
        "rag.retrieval.semantic_weight": 0.0,
        "rag.retrieval.keyword_weight": 1.0,
        "rag.retrieval.fuzzy": False,
        "rag.retrieval.fold_copies": False,
    },
    # The server searches, by the index: vectors in the memory of the process would answer in its place.
    DENSE: {
        "rag.retrieval.semantic_weight": 1.0,
        "rag.retrieval.keyword_weight": 0.0,
        "indexes.vector_cache_mb": 0,
    },
    BOTH: {},
}
"""What is changed in the settings to ask one retriever alone."""
EXACT = "exact scan"
OURS = "kosmos"
CLIENTS = (1, 2, 4, 8, 16)
RECALL_TARGET = 0.99
"""Of the ten nearest: the goal of the benchmark, above the default."""
NEW_WORD = "zyxomorphquandle"
"""In no text but the one that is published to be found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What one way of answering costs and finds in one tenant. Times are milliseconds."""

    retriever: str
    way: str
    """`kosmos`, or the alternative."""
    share: Share
    plan: str
    p50: float
    p95: float
    p99: float
    in_retriever: float | None = None
    """p50 of the retriever's own stage: what is left of p50 is the transaction, its plan and the passages."""
    recall_10: float | None = None
    recall_100: float | None = None
    difference: float | None = None
    """Largest relative difference of a score from that of the reference implementation."""
    note: str = ""
    detail: Mapping[str, Any] | None = None


class Times(TypedDict):
    """Percentiles, milliseconds."""

    p50: float
    p95: float
    p99: float


class Recalls(TypedDict):
    """Shares of the true best hits that were found."""

    recall_10: float
    recall_100: float


class Prepared(HashingEmbedder):
    """An embedder that has the vectors of its texts already: what is measured then is the search alone."""

    def __init__(self, vectors: Mapping[str, NDArray[np.float32]], dimensions: int) -> None:
        """Take vectors by text."""
        super().__init__(dimensions=dimensions)
        self._vectors = vectors

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Look up one text. Raises KeyError on one that is not there: a made-up vector would be measured unseen."""
        return self._vectors[question]


class Drawn(HashingEmbedder):
    """An embedder for made words: a vector from where all others are, and words as such for the fixed sentences."""

    def __init__(self, data: ZipfData, fixed: Sequence[str]) -> None:
        """Draw from the distribution of `data`, but for the `fixed` texts."""
        super().__init__(dimensions=data.dimensions)
        self._data = data
        self._fixed = frozenset(fixed)

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Embed one text."""
        return super().embed_query(question) if question in self._fixed else self._data.vector(question)


def embedder(name: str) -> Embedder:
    """Return what embeds any question on this data: the real model, or for made words a draw."""
    if name in MADE:
        return Drawn(MADE[name](), [PROBE, NEW_WORD])
    return SentenceTransformerEmbedder(EmbeddingSettings(model=MINILM, dimensions=384), ModelsSettings(backend="onnx"))


def settings(data_dir: Path, dimensions: int, changes: Mapping[str, Any]) -> Settings:
    """Return settings on one embedded server: vectors of that length, no reranker, a hundred hits, and `changes`."""
    fixed = {
        "database.data_dir": str(data_dir),
        "rag.embedding.model": "prepared",
        "rag.embedding.dimensions": dimensions,
        "rag.reranking.enabled": False,
        "rag.retrieval.top_k": DEPTH,
        "rag.retrieval.candidates": DEPTH,
        # Or questions of made words, near to nothing, would get fewer hits than they ask for.
        "rag.retrieval.similarity_threshold": -1.0,
        "indexes.recall_target": RECALL_TARGET,
    }
    return Settings.load(overrides={**fixed, **changes})


@contextmanager
def open_engines(data_dir: Path, prepared: Prepared, whole: Embedder) -> Iterator[dict[str, Engine]]:
    """Open an engine for each retriever alone, for the exact scan of the vectors, and for both retrievers.

    The engine for both retrievers embeds its questions with `whole`; the others have their vectors prepared.
    """
    changes = {**ONLY, EXACT: {**ONLY[DENSE], "indexes.vector": "none"}}
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                Engine(settings(data_dir, prepared.dimensions, changed), embedder=whole if name == BOTH else prepared)
            )
            for name, changed in changes.items()
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One tenant measured: the rows of the table, and what the alternatives are compared with."""

    rows: list[Row]
    exact: list[list[UUID]]
    """The true nearest chunks of each question, best first."""
    scores: list[list[float]]
    """Lexical scores of each question's hits, best first."""


def measure_tenant(
    engines: Mapping[str, Engine], share: Share, warm: Sequence[str], questions: Sequence[str]
) -> Measured:
    """Ask a tenant `asked` in every way, after `warm`: questions of their own, so that none is asked twice."""
    rows, answers = [], {}
    for name, engine in engines.items():
        tenant = engine.tenant(share.tenant)
        ask(tenant, warm)
        answers[name], times = ask(tenant, questions)
        rows.append(_row(name, share, answers[name], times))
    exact = [[hit.chunk_id for hit in answer.hits] for answer in answers[EXACT]]
    rankings = [[hit.chunk_id for hit in answer.hits] for answer in answers[DENSE]]
    rows = [
        replace(row, **recalls(rankings, exact)) if (row.retriever, row.way) == (DENSE, OURS) else row for row in rows
    ]
    scores = [[hit.lexical_score for hit in a.hits if hit.lexical_score is not None] for a in answers[LEXICAL]]
    return Measured(rows=rows, exact=exact, scores=scores)


def ask(tenant: Tenant, questions: Sequence[str]) -> tuple[list[SearchResult], list[float]]:
    """Ask questions one after the other; returns the answers and the milliseconds of each."""
    answers, times = [], []
    for question in questions:
        began = time.perf_counter()
        answers.append(tenant.search(question, DEPTH))
        times.append((time.perf_counter() - began) * 1000)
    return answers, times


def _row(name: str, share: Share, answers: Sequence[SearchResult], times: Sequence[float]) -> Row:
    retriever, way = (DENSE, EXACT) if name == EXACT else (name, OURS)
    retrievers = {name: [asdict(answer.retrievers[name]) for answer in answers] for name in answers[0].retrievers}
    plans = [
        Counter(account["plan"] for account in retrievers[name]).most_common(1)[0][0] for name in sorted(retrievers)
    ]
    stages = {
        stage: round(statistics.median(answer.timings_ms.get(stage, 0.0) for answer in answers), 3)
        for stage in sorted({stage for answer in answers for stage in answer.timings_ms})
    }
    return Row(
        retriever=retriever,
        way=way,
        share=share,
        plan="; ".join(plans),
        **percentiles(times),
        in_retriever=stages.get(retriever),
        detail={
            "stages_p50_ms": stages,
            "retrievers": {name: _summary(accounts) for name, accounts in retrievers.items()},
        },
    )


def _summary(accounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum up an account over all questions: the mean of each number, how often each text."""
    summary: dict[str, Any] = {}
    for key in {key: None for account in accounts for key in account}:
        values = [account[key] for account in accounts if key in account]
        if all(isinstance(value, Mapping) for value in values):
            summary[key] = _summary(values)
        elif all(isinstance(value, int | float) for value in values):
            summary[key] = round(statistics.mean(values), 2)
        else:
            summary[key] = dict(Counter(map(str, values)))
    return summary


def percentiles(times: Sequence[float]) -> Times:
    """Return p50, p95 and p99."""
    p50, p95, p99 = (round(float(value), 2) for value in np.percentile(times, (50, 95, 99)))
    return Times(p50=p50, p95=p95, p99=p99)


def recalls(rankings: Sequence[Sequence[UUID]], exact: Sequence[Sequence[UUID]]) -> Recalls:
    """Return the share of the true best 10 and 100 that was found among as many, over all questions."""
    return Recalls(recall_10=recall(rankings, exact, 10), recall_100=recall(rankings, exact, 100))


def recall(rankings: Sequence[Sequence[UUID]], exact: Sequence[Sequence[UUID]], depth: int) -> float:
    """Return the mean share of the true best that was found among as many, over the questions that have any."""
    pairs = [(set(ranking[:depth]), set(best[:depth])) for ranking, best in zip(rankings, exact, strict=True) if best]
    return round(statistics.mean(len(ranking & best) / len(best) for ranking, best in pairs), 4) if pairs else math.nan


def throughput(tenant: Tenant, questions: Sequence[str], clients: int, seconds: float) -> dict[str, Any]:
    """Let clients ask without pause for a time. `fairness` is the slowest client's count by the fastest's."""
    times: list[list[float]] = [[] for _ in range(clients)]
    errors: list[Counter[str]] = [Counter() for _ in range(clients)]
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        at = number * len(questions) // clients
        while (began := time.perf_counter()) < end:
            try:
                tenant.search(questions[at % len(questions)], DEPTH)
            except KosmosError as error:
                errors[number][type(error).__name__] += 1
            else:
                times[number].append((time.perf_counter() - began) * 1000)
            at += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = [len(of_client) for of_client in times]
    return {
        "clients": clients,
        "queries_per_s": round(sum(counts) / seconds, 1),
        **percentiles([milliseconds for of_client in times for milliseconds in of_client] or [float("nan")]),
        "errors": dict(sum(errors, Counter())),
        "fairness": round(min(counts) / max(1, *counts), 2),
    }
