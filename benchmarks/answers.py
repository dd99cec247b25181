"""Whether answers are refused when they should be, fitted on two thirds of the questions and reported on the last.

    python -m benchmarks.answers [--json FILE]

Prints the coefficients for kosmos_rag/answering/abstaining.py, the figures with those that are there, and how far the
citation checker tells true claims from altered ones (benchmarks/claims.yaml). The split is by hash of the text.
"""

import argparse
import atexit
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from kosmos_rag import Engine, Settings, TenantScope
from kosmos_rag.answering.abstaining import confidence, features
from kosmos_rag.answering.checking import check_citations
from kosmos_rag.answering.evidence import weigh
from kosmos_rag.embedding import SentenceTransformerEmbedder
from kosmos_rag.ports import Embedder, Tokenizer, Vectors

ROOT = Path(__file__).parents[1]
PENALTY = 1.0
"""Of the squares of the coefficients, features scaled to variance 1."""
BOUNDS = (0.3, 0.5, 0.7)
"""Thresholds that are reported, beside the one in use."""


class Remembering:
    """An embedder that embeds each text once: questions share their passages."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._seen: dict[str, NDArray[np.float32]] = {}
        self.name, self.dimensions, self.max_tokens = embedder.name, embedder.dimensions, embedder.max_tokens

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""
        return self._embedder.tokenizer

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed what is new."""
        new = [text for text in dict.fromkeys(texts) if text not in self._seen]
        if new:
            self._seen.update(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._seen[text] for text in texts])

    def embed_query(self, question: str) -> NDArray[np.float32]:
        """Embed a question, each time."""
        return self._embedder.embed_query(question)


def held_out(question: str) -> bool:
    """Whether a question is of the third that nothing is fitted on."""
    return int(hashlib.sha256(question.encode()).hexdigest(), 16) % 3 == 0


def fitted(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Fit a logistic regression by Newton's method, both classes with the same weight: intercept, coefficients."""
    mean, deviation = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    z = np.column_stack([np.ones(len(x)), (x - mean) / deviation])
    weights = np.where(y == 1, len(y) / (2 * y.sum()), len(y) / (2 * (1 - y).sum()))
    penalty = PENALTY * np.diag([0.0, *np.ones(x.shape[1])])
    found = np.zeros(z.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-z @ found))
        hessian = (z * (weights * p * (1 - p))[:, None]).T @ z + penalty
        found += np.linalg.solve(hessian, z.T @ (weights * (y - p)) - penalty @ found)
    coefficients = found[1:] / deviation
    return float(found[0] - coefficients @ mean), coefficients


def figures(refused: Iterable[bool], answerable: Iterable[bool]) -> dict[str, float]:
    """Return how refusing did: its recall and precision, and the share of answerable questions that it refused."""
    pairs = list(zip(refused, answerable, strict=True))
    right = sum(no and not can for no, can in pairs)
    wrong = sum(no and can for no, can in pairs)
    questions = sum(can for _, can in pairs)
    return {
        "answerable": questions,
        "unanswerable": len(pairs) - questions,
        "recall": round(right / (len(pairs) - questions), 3),
        "precision": round(right / max(1, right + wrong), 3),
        "answerable_refused": round(wrong / questions, 3),
    }


def abstaining(scope: TenantScope, embedder: Embedder, threshold: float, passages: int) -> dict[str, Any]:
    """Fit, print the coefficients, and measure those in use."""
    questions = yaml.safe_load((ROOT / "examples" / "questions.yaml").read_text(encoding="utf-8"))
    rows = []
    for entry in questions:
        context = scope.context(entry["question"])
        evidence = weigh(entry["question"], context.passages[:passages], embedder)
        rows.append(features(context, evidence, embedder))
    answerable = [entry.get("answerable", True) for entry in questions]
    held = [held_out(entry["question"]) for entry in questions]
    train = np.array([not out for out in held])
    x = np.array([list(row.values()) for row in rows])
    intercept, coefficients = fitted(x[train], np.array(answerable, dtype=float)[train])
    print(f"INTERCEPT = {intercept:.3f}")
    print("COEFFICIENTS =", {name: round(float(c), 3) for name, c in zip(rows[0], coefficients, strict=True)})
    confidences = [confidence(row) for row in rows]
    result: dict[str, Any] = {}
    for part, wanted in (("fitted on", False), ("held out", True)):
        chosen = [index for index, out in enumerate(held) if out is wanted]
        for bound in sorted({*BOUNDS, threshold}):
            refusing = [confidences[i] < bound for i in chosen]
            result[f"{part}, threshold {bound}"] = figures(refusing, [answerable[i] for i in chosen])
    print(*(f"{name}: {row}" for name, row in result.items()), sep="\n")
    refused = [value < threshold for value in confidences]
    result["errors"] = [
        f"{'refused' if no else 'answered'}: {entry['question']}"
        for entry, no, can, out in zip(questions, refused, answerable, held, strict=True)
        if no is can and out
    ]
    print("errors among the questions held out:", *result["errors"], sep="\n  ")
    return result


def checking(scope: TenantScope, embedder: Embedder, citation_format: str) -> dict[str, Any]:
    """Measure how the checker judges claims against the passages of their question."""
    claims = yaml.safe_load((ROOT / "benchmarks" / "claims.yaml").read_text(encoding="utf-8"))
    found: dict[bool, list[bool]] = {True: [], False: []}
    errors = []
    for entry in claims:
        context = scope.context(entry["question"], k=5)
        for claim, true in [(entry["true"], True), *((false, False) for false in entry["false"])]:
            marked = f"{claim} " + "".join(passage.citation.marker for passage in context.passages)
            report = check_citations(marked, context.passages, embedder=embedder, citation_format=citation_format)
            found[true].append(report.supported)
            if report.supported is not true:
                said = report.sentences[0]
                errors.append(f"{said.verdict} ({said.overlap:.2f}, {said.similarity:.2f}, {said.reason}): {claim}")
    result = {
        "true": len(found[True]),
        "true_supported": sum(found[True]),
        "altered": len(found[False]),
        "altered_refused": found[False].count(False),
        "errors": errors,
    }
    print("checker", {key: value for key, value in result.items() if key != "errors"})
    print(*errors, sep="\n  ")
    return result


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "answers.json", metavar="FILE")
    arguments = parser.parse_args()
    scratch = tempfile.mkdtemp(prefix="kosmos-bench-")
    # Registered before the server's own stop, so done after it: a server must not lose its folder while it runs.
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    settings = Settings.load(ROOT / "examples" / "minilm.yaml", overrides={"database.data_dir": scratch})
    embedder = Remembering(SentenceTransformerEmbedder(settings.rag.embedding, settings.models))
    with Engine(settings, embedder=embedder) as engine:
        scope = engine.tenant("bench")
        scope.ingest([ROOT / "examples" / "knowledge_base"])
        answer = settings.rag.answer
        result = {
            "abstaining": abstaining(scope, embedder, answer.threshold, answer.passages),
            "checking": checking(scope, embedder, settings.rag.context.citation_format),
        }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nfigures: {arguments.json}")


if __name__ == "__main__":
    main()
