"""Measure refusals of questions with and without an answer, in four fields.

    python -m benchmarks.answers [--json FILE] [--quick]

Two fields are samples, and one half of each is fitted on. The others are two documentation trees of the part `tuning`,
which are fitted on as a whole; `make bench-docs` has the held-out trees. Questions of each field are also asked about
another field, where they have no answer.

The command prints the coefficients for kosmos_rag/answering/abstention.py, the figures of both halves with the present
coefficients, and the figures of each field with a fit on the other fields alone. Then it measures how well the citation
checker distinguishes true claims from altered ones (benchmarks/claims.yaml). The halves are by a hash of the text.
"""

import hashlib
import math
import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.command import EXAMPLES, ROOT, command, parse, temporary_folder, write_results
from benchmarks.corporate import QUESTIONS, write_sample
from benchmarks.documentation.trees import Tree, load_trees, quick_tree
from benchmarks.quick import embedder
from benchmarks.remembering import Remembering
from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.answering.abstention import confidence, features
from kosmos_rag.answering.citation_check import check_citations
from kosmos_rag.answering.evidence import score_evidence
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.models.packaged import MINILM

PENALTY = 1.0
"""Of the squares of the coefficients, features scaled to variance 1."""
FOREIGN = 12
"""Questions of each field that are asked of every other one."""
FOREIGN_WEIGHT = 0.5
"""Of the questions of other fields, where those of the field itself have 1: they are easy to refuse."""
ANSWERABLE_WEIGHT = 1.4
"""Of questions with an answer, where those without one have 1: with it, 0.5 refuses about .80 on the trees."""
TREES = ("click", "supervisor")
"""Documentation trees that the coefficients in use are fitted on."""
BOUNDS = (0.3, 0.5, 0.7)
"""Thresholds that are reported in addition to the one in use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionFeatures:
    """A question of a field, with what its evidence is worth."""

    field: str
    question: str
    answerable: bool
    features: dict[str, float]
    foreign: bool
    """Whether it is a question of another field."""
    halved: bool
    """Whether only half of the field is fitted on."""

    @property
    def weight(self) -> float:
        """Weight of its kind of question in a fit."""
        if self.foreign:
            return FOREIGN_WEIGHT
        return ANSWERABLE_WEIGHT if self.answerable else 1.0

    @property
    def held_out(self) -> bool:
        """Whether it is of the half of a sample that nothing is fitted on."""
        return not self.foreign and self.halved and int(hashlib.sha256(self.question.encode()).hexdigest(), 16) % 2 == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """A logistic regression."""

    intercept: float
    coefficients: dict[str, float]

    def confidence(self, features: Mapping[str, float]) -> float:
        """Return the probability of an answer, as `abstention.confidence` does with the coefficients in use."""
        return 1 / (1 + math.exp(-self.intercept - sum(self.coefficients[key] * features[key] for key in features)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """Documents with questions."""

    name: str
    tenant: Tenant
    questions: Mapping[str, bool]
    """Whether the documents answer it, by question."""
    halved: bool


def sample(name: str, tenant: Tenant, questions: Path, *, step: int = 1) -> Field:
    """Return a field with the questions of a file; every `step`th."""
    entries = yaml.safe_load(questions.read_text(encoding="utf-8"))[::step]
    answerable = {entry["question"]: entry.get("answerable", True) for entry in entries}
    return Field(name=name, tenant=tenant, questions=answerable, halved=True)


def documentation(engine: Engine, tree: Tree) -> Field:
    """Ingest a documentation tree and return it as a field."""
    tenant = engine.tenant(tree.name)
    tenant.ingest(SourceDocument(source=path, data=data) for path, data in tree.files.items())
    questions = {question.text: question.kind != "unanswerable" for question in tree.questions}
    return Field(name=tree.name, tenant=tenant, questions=questions, halved=False)


def collect_features(fields: Sequence[Field], embedder: Embedder, passages: int) -> list[QuestionFeatures]:
    """Ask each field its questions, and some of each other field."""
    rows = []
    for field in fields:
        foreign = [
            (question, False, True)
            for other in fields
            if other.name != field.name
            for question in random.Random(0).sample(sorted(other.questions), min(FOREIGN, len(other.questions)))
            if question not in field.questions
        ]
        answerable_rows = [(question, answerable, False) for question, answerable in field.questions.items()]
        for question, answerable, is_foreign in answerable_rows + foreign:
            context = field.tenant.context(question)
            evidence = score_evidence(question, context.passages[:passages], embedder)
            if evidence:
                rows.append(
                    QuestionFeatures(
                        field=field.name,
                        question=question,
                        answerable=answerable,
                        features=features(context, evidence, embedder),
                        foreign=is_foreign,
                        halved=field.halved,
                    )
                )
    return rows


def fit_model(rows: Sequence[QuestionFeatures]) -> Fit:
    """Fit by Newton's method, each kind of question of a field with the weight of the kind."""
    x = np.array([list(row.features.values()) for row in rows])
    y = np.array([row.answerable for row in rows], dtype=float)
    kinds = Counter((row.field, row.answerable, row.foreign) for row in rows)
    weights = np.array(
        [row.weight * len(rows) / len(kinds) / kinds[row.field, row.answerable, row.foreign] for row in rows]
    )
    mean, deviation = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    z = np.column_stack([np.ones(len(x)), (x - mean) / deviation])
    penalty = PENALTY * np.diag([0.0, *np.ones(x.shape[1])])
    parameters = np.zeros(z.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-z @ parameters))
        hessian = (z * (weights * p * (1 - p))[:, None]).T @ z + penalty
        parameters += np.linalg.solve(hessian, z.T @ (weights * (y - p)) - penalty @ parameters)
    slopes = parameters[1:] / deviation
    names = rows[0].features
    return Fit(
        intercept=round(float(parameters[0] - slopes @ mean), 3),
        coefficients={name: round(float(slope), 3) for name, slope in zip(names, slopes, strict=True)},
    )


def figures(rows: Sequence[QuestionFeatures], confidences: Sequence[float], bound: float) -> dict[str, float]:
    """Return how refusing below a bound did: recall, precision, the share of answerable questions that it refused.

    `auc` is the probability that an answerable question has more confidence than another one, whatever the bound.
    """
    yes = np.array([c for row, c in zip(rows, confidences, strict=True) if row.answerable])
    no = np.array([c for row, c in zip(rows, confidences, strict=True) if not row.answerable])
    right, wrong = int((no < bound).sum()), int((yes < bound).sum())
    return {
        "answerable": len(yes),
        "unanswerable": len(no),
        "recall": round(right / len(no), 3),
        "precision": round(right / max(1, right + wrong), 3),
        "answerable_refused": round(wrong / len(yes), 3),
        "auc": round(float((yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2), 3),
    }


def measure_abstention(rows: Sequence[QuestionFeatures], threshold: float) -> dict[str, Any]:
    """Fit, print the coefficients, and measure those in use and those of the other field alone."""
    fit = fit_model([row for row in rows if not row.held_out])
    print(f"INTERCEPT = {fit.intercept}\nCOEFFICIENTS = {fit.coefficients}")
    result: dict[str, Any] = {}
    for field in dict.fromkeys(row.field for row in rows):
        field_rows = [row for row in rows if row.field == field and not row.foreign]
        fitting_rows = [row for row in field_rows if not row.held_out]
        unseen = [row for row in field_rows if row.held_out] or field_rows
        foreign = [confidence(row.features) for row in rows if row.field == field and row.foreign]
        result[f"{field}, refused of other fields' questions"] = round(float(np.mean(np.array(foreign) < threshold)), 3)
        for part, chosen in {
            "fitted on": fitting_rows,
            "held out": [row for row in field_rows if row.held_out],
        }.items():
            if not chosen:
                continue
            confidences = [confidence(row.features) for row in chosen]
            for bound in sorted({*BOUNDS, threshold}):
                result[f"{field}, {part}, threshold {bound}"] = figures(chosen, confidences, bound)
        other = fit_model([row for row in rows if row.field != field and not row.held_out])
        confidences = [other.confidence(row.features) for row in unseen]
        result[f"{field}, fitted elsewhere, threshold {threshold}"] = figures(unseen, confidences, threshold)
    print(*(f"{name}: {row}" for name, row in result.items()), sep="\n")
    result["errors"] = errors([row for row in rows if row.held_out], threshold)
    print("errors among the questions held out:", *result["errors"], sep="\n  ")
    return result


def errors(rows: Sequence[QuestionFeatures], threshold: float) -> list[str]:
    """Name the questions that are refused and have an answer, or the other way round."""
    refused = [confidence(row.features) < threshold for row in rows]
    return [
        f"{row.field}, {'refused' if no else 'answered'}: {row.question}"
        for row, no in zip(rows, refused, strict=True)
        if no is row.answerable
    ]


def measure_checker(tenant: Tenant, embedder: Embedder, citation_format: str) -> dict[str, Any]:
    """Measure how the checker judges claims against the passages of their question."""
    claims = yaml.safe_load((ROOT / "benchmarks" / "claims.yaml").read_text(encoding="utf-8"))
    verdicts: dict[bool, list[bool]] = {True: [], False: []}
    errors = []
    for entry in claims:
        context = tenant.context(entry["question"], k=5)
        for claim, true in [(entry["true"], True), *((false, False) for false in entry["false"])]:
            marked = f"{claim} " + "".join(passage.citation.marker for passage in context.passages)
            report = check_citations(marked, context.passages, embedder=embedder, citation_format=citation_format)
            verdicts[true].append(report.supported)
            if report.supported is not true:
                sentence = report.sentences[0]
                errors.append(
                    f"{sentence.verdict} ({sentence.overlap:.2f}, {sentence.similarity:.2f}, {sentence.reason}): "
                    f"{claim}"
                )
    result = {
        "true": len(verdicts[True]),
        "true_supported": sum(verdicts[True]),
        "altered": len(verdicts[False]),
        "altered_refused": verdicts[False].count(False),
        "errors": errors,
    }
    print("checker", {key: value for key, value in result.items() if key != "errors"})
    print(*errors, sep="\n  ")
    return result


def main() -> None:
    """Run the benchmark."""
    arguments = parse(command(__doc__, "answers.json"))
    settings = Settings.load(
        EXAMPLES / "minilm.yaml",
        overrides={"database.data_dir": str(temporary_folder() / "database"), "rag.embedding.model": MINILM},
    )
    model = Remembering(embedder(settings, quick=arguments.quick))
    with Engine(settings, embedder=model) as engine:
        tenant = engine.tenant("analytics")
        tenant.ingest([EXAMPLES / "knowledge_base"])
        engine.tenant("corporate").collections.create("sample", preset="corporate")
        corporate = engine.tenant("corporate", collection="sample")
        with tempfile.TemporaryDirectory() as folder:
            write_sample(Path(folder), quick=arguments.quick)
            corporate.ingest(folder)
        passages, step = settings.rag.answer.max_passages, 10 if arguments.quick else 1
        trees = [quick_tree()] if arguments.quick else load_trees(TREES)
        fields = [
            sample("analytics", tenant, EXAMPLES / "questions.yaml", step=step),
            sample("corporate", corporate, QUESTIONS, step=step),
            *(documentation(engine, tree) for tree in trees),
        ]
        rows = collect_features(fields, model, passages)
        result = {
            "abstaining": measure_abstention(rows, settings.rag.answer.threshold),
            "checking": measure_checker(tenant, model, settings.rag.context.citation_format),
        }
    write_results(arguments.json, result)


if __name__ == "__main__":
    main()
