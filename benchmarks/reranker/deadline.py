"""Measure searches with a reranker that hangs, against its deadline.

    python -m benchmarks.reranker.deadline [--deadline MS] [--questions N] [--quick]

It runs on an embedded server in a temporary folder, with the sample documents and vectors made of words. No model is
loaded.
"""

import threading
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.command import EXAMPLES, command, parse, temporary_folder
from kosmos_rag import Engine, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder

ALLOWED_MS = 20.0
_QUESTIONS = ("how is churn calculated", "net revenue of a region", "what counts as an active user", "trial accounts")


class Hanging:
    """A reranker that never answers."""

    name = "hanging"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """Wait for ever."""
        threading.Event().wait()
        raise AssertionError(question, passages)


def main() -> None:
    """Ask, and print the percentiles."""
    parser = command(__doc__)
    parser.add_argument("--deadline", type=int, default=100, metavar="MS")
    parser.add_argument("--questions", type=int, default=200, metavar="N")
    arguments = parse(parser, questions=8)
    settings = Settings.load(
        overrides={
            "database.data_dir": str(temporary_folder()),
            "rag.chunking.strategy": "paragraph",
            "rag.reranking.deadline_ms": arguments.deadline,
        }
    )
    times = []
    with Engine(settings, embedder=HashingEmbedder(), reranker=Hanging()) as engine:
        tenant = engine.tenant("bench")
        tenant.ingest(EXAMPLES / "knowledge_base")
        for number in range(arguments.questions):
            started = time.perf_counter()
            result = tenant.search(_QUESTIONS[number % len(_QUESTIONS)])
            times.append((time.perf_counter() - started) * 1000)
            if result.degraded_stages != ("rerank",) or not result.hits:
                raise SystemExit(f"the response does not say that it was cut: {result}")
    p50, p99, slowest = np.percentile(times, [50, 99, 100])
    verdict = "met" if p99 <= arguments.deadline + ALLOWED_MS else "missed"
    print(f"deadline {arguments.deadline} ms, {arguments.questions} questions, each said to be cut:")
    print(
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, slowest {slowest:.1f} ms; p99 within {ALLOWED_MS:.0f} ms of it: {verdict}"
    )


if __name__ == "__main__":
    main()
