"""Measure ranking, context, answers and refusals on documentation trees.

    python -m benchmarks.documentation [--tree NAME ...] [--set KEY=VALUE ...] [--json FILE] [--bounds FILE] [--quick]

Each tree is a tenant. A chunk is correct if it has the line that answers the question. success@k is the share of
questions with a correct chunk among the first k, MRR that of ten. `in context` and `in answer` use the default
settings: the line is in the context, and a sentence of the answer has most of the line's words. Intervals are 95 %
bootstrap intervals of the difference of MRR to the default, paired by question; p is by randomisation, corrected by
Holm's method within a tree. The command fails if the default is significantly worse than the better retriever alone for
one kind of question, or if a figure is outside its bounds, which are those of the default settings.
"""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.better_retriever import compare_with_better, exit_if_worse
from benchmarks.bounds import command_with_bounds, exit_outside
from benchmarks.command import MODEL, parse, temporary_folder, write_results
from benchmarks.documentation.trees import Question, Tree, load_trees, quick_tree
from benchmarks.quick import embedder
from benchmarks.remembering import Remembering
from kosmos_rag import Context, Engine, Settings, SourceDocument, Tenant
from kosmos_rag.apps.cli.common import overrides
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import AnswerSentence, ContextPassage
from kosmos_rag.evaluation.offline.significance import bootstrap_interval, holm, randomisation_p

DEPTH = 10
ANSWERABLE = ("paraphrase", "identifier", "ordinary")
IN_ANSWER = 0.6
"""Share of the words of the answering line that a sentence of the answer must have."""
ROWS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "dense alone": {"rag.retrieval.semantic_weight": 1.0, "rag.retrieval.keyword_weight": 0.0},
    "lexical alone": {"rag.retrieval.semantic_weight": 0.0, "rag.retrieval.keyword_weight": 1.0},
    "fixed weights": {"rag.retrieval.weighting": "fixed"},
    "score": {"rag.retrieval.fusion": "score"},
}
"""Changes of settings, by row."""
RETRIEVERS = ("dense alone", "lexical alone")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Success and MRR of one row on one kind of question."""

    ranks: tuple[int, ...]
    """Of the first right chunk, from 1; 0 where none is among the first ten."""

    @property
    def reciprocal(self) -> list[float]:
        """Return the reciprocal rank of each question."""
        return [1 / rank if rank else 0.0 for rank in self.ranks]

    def summarize(self) -> dict[str, float]:
        """Return success at 1, 5 and 10, and MRR."""
        success = {f"s@{k}": statistics.fmean(0 < rank <= k for rank in self.ranks) for k in (1, 5, DEPTH)}
        return {name: round(value, 3) for name, value in {**success, "MRR": statistics.fmean(self.reciprocal)}.items()}


def _holds(question: Question, source: str, lines: tuple[int, int]) -> bool:
    return source == question.file and any(lines[0] <= line <= lines[1] for line in question.lines)


def _rank(tenant: Tenant, question: Question) -> int:
    hits = tenant.search(question.text, DEPTH).hits
    return next((hit.rank for hit in hits if _holds(question, hit.source, (hit.line_start, hit.line_end))), 0)


def _in_context(question: Question, context: Context) -> bool:
    return any(_in_passage(question, passage) for passage in context.passages)


def _in_passage(question: Question, passage: ContextPassage) -> bool:
    cited = passage.citation
    return _holds(question, cited.source, (cited.line_start, cited.line_end)) or (
        cited.source == question.file and question.quote in passage.text
    )


def _in_answer(question: Question, sentences: Sequence[AnswerSentence]) -> bool:
    quote_words = set(_WORD.findall(question.quote.casefold()))
    shares = [
        len(quote_words & set(_WORD.findall(sentence.text.casefold()))) / max(1, len(quote_words))
        for sentence in sentences
    ]
    return max(shares, default=0.0) >= IN_ANSWER


def _by_kind(questions: Sequence[Question]) -> dict[str, list[Question]]:
    return {kind: [question for question in questions if question.kind == kind] for kind in ANSWERABLE}


def _measure_answers(tenant: Tenant, questions: Sequence[Question]) -> dict[str, float]:
    """Return shares for the default settings: context and answer of what has an answer, refusals, AUC of confidence.

    Refusals of answerable questions are also given for each kind, and for those with the line in the context. The
    sentence is also counted where the first passage has the line, among the closest sentences of a refusal too.
    """
    in_context: list[bool] = []
    in_answer: list[bool] = []
    in_answer_of_first: list[bool] = []
    refused_in_context: list[bool] = []
    refused: dict[bool, list[bool]] = {True: [], False: []}
    refused_of_kind: dict[str, list[bool]] = {}
    confidence: dict[bool, list[float]] = {True: [], False: []}
    for question in questions:
        answerable = question.kind in ANSWERABLE
        answer = tenant.answer(question.text)
        refused[answerable].append(answer.refused)
        confidence[answerable].append(answer.confidence)
        if answerable:
            refused_of_kind.setdefault(question.kind, []).append(answer.refused)
            in_context.append(_in_context(question, answer.context))
            if in_context[-1]:
                refused_in_context.append(answer.refused)
            if not answer.refused:
                in_answer.append(_in_answer(question, answer.sentences))
            if answer.context.passages and _in_passage(question, answer.context.passages[0]):
                in_answer_of_first.append(_in_answer(question, answer.sentences or answer.closest))
    yes, no = np.array(confidence[True])[:, None], np.array(confidence[False])
    return {
        "in context": round(statistics.fmean(in_context), 3),
        "in answer, where answered": round(statistics.fmean(in_answer), 3) if in_answer else 0.0,
        "in answer, where the first passage has it": round(statistics.fmean(in_answer_of_first), 3)
        if in_answer_of_first
        else 0.0,
        "refused of unanswerable": round(statistics.fmean(refused[False]), 3),
        "refused of answerable": round(statistics.fmean(refused[True]), 3),
        **{f"refused of {kind}": round(statistics.fmean(of), 3) for kind, of in refused_of_kind.items()},
        "refused of those in context": round(statistics.fmean(refused_in_context), 3) if refused_in_context else 0.0,
        "AUC": round(float((yes > no).mean() + (yes == no).mean() / 2), 3),
    }


def _compare(rows: Mapping[str, Mapping[str, Figures]]) -> dict[str, dict[str, Any]]:
    """Compare each row's MRR with the default's, kind by kind."""
    pairs = [(row, kind) for row in rows if row != "default" for kind in ANSWERABLE]
    differences = [
        np.subtract(rows[row][kind].reciprocal, rows["default"][kind].reciprocal).tolist() for row, kind in pairs
    ]
    corrected = holm([randomisation_p(values) for values in differences])
    compared: dict[str, dict[str, Any]] = {}
    for (row, kind), values, p in zip(pairs, differences, corrected, strict=True):
        low, high = bootstrap_interval(values)
        compared.setdefault(row, {})[kind] = {
            "MRR": round(statistics.fmean(values), 3),
            "interval": [round(low, 3), round(high, 3)],
            "p": round(p, 4),
        }
    return compared


def measure(tree: Tree, configuration: dict[str, Any], model: Embedder) -> dict[str, Any]:
    """Ingest a tree into a tenant of its own and measure each row; `configuration` are changed settings."""
    with Engine(Settings.load(overrides=configuration), embedder=model) as engine:
        report = engine.tenant(tree.name).ingest(
            SourceDocument(source=path, data=data) for path, data in tree.files.items()
        )
        if report.failed:
            raise SystemExit(f"{len(report.failed)} documents failed, the first: {report.failed[0]}")
        answers = _measure_answers(engine.tenant(tree.name), tree.questions)
    rows: dict[str, dict[str, Figures]] = {}
    for name, changes in ROWS.items():
        with Engine(Settings.load(overrides={**configuration, **changes}), embedder=model) as engine:
            tenant = engine.tenant(tree.name)
            rows[name] = {
                kind: Figures(ranks=tuple(_rank(tenant, question) for question in questions))
                for kind, questions in _by_kind(tree.questions).items()
            }
    return {
        "tree": tree.name,
        "part": tree.part,
        "files": len(tree.files),
        "chunks": report.chunks,
        "questions": {kind: len(questions) for kind, questions in _by_kind(tree.questions).items()},
        "rows": {name: {kind: row.summarize() for kind, row in kinds.items()} for name, kinds in rows.items()},
        "compared with the default": _compare(rows),
        "compared with the better retriever": {
            kind: compare_with_better(
                rows["default"][kind].reciprocal, {name: rows[name][kind].reciprocal for name in RETRIEVERS}
            )
            for kind in ANSWERABLE
        },
        "answers": answers,
    }


def _print(result: dict[str, Any]) -> None:
    print(f"\n{result['tree']} ({result['part']}): {result['files']} files, {result['chunks']} chunks")
    for kind, number in result["questions"].items():
        columns = ("s@1", "s@5", f"s@{DEPTH}", "MRR")
        print(f"{f'{kind}, {number} questions':<28}" + "".join(f"{column:>8}" for column in columns))
        for name, kinds in result["rows"].items():
            line = f"  {name:<26}" + "".join(f"{kinds[kind][column]:>8.3f}" for column in columns)
            if other := result["compared with the default"].get(name):
                low, high = other[kind]["interval"]
                line += f"   {other[kind]['MRR']:+.3f} [{low:+.3f}, {high:+.3f}], p {other[kind]['p']}"
            print(line)
    print("  " + ", ".join(f"{name} {value}" for name, value in result["answers"].items()))


def main() -> None:
    """Run the benchmark."""
    parser = command_with_bounds(__doc__, "documentation.json")
    parser.add_argument("--tree", action="append", default=[], metavar="NAME", help="a tree; may be repeated")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="change a setting")
    arguments = parse(parser)
    trees = [quick_tree()] if arguments.quick else load_trees(tuple(arguments.tree))
    changes = {**MODEL, "database.data_dir": str(temporary_folder()), **overrides(arguments.set)}
    model = Remembering(embedder(Settings.load(overrides=changes), quick=arguments.quick))
    results = []
    for tree in trees:
        results.append(measure(tree, changes, model))
        _print(results[-1])
    write_results(arguments.json, {"settings": arguments.set or [], "results": results})
    if not arguments.quick:
        exit_if_worse(
            {
                f"{result['tree']}, {kind}": compared
                for result in results
                for kind, compared in result["compared with the better retriever"].items()
            }
        )
    if not arguments.set:
        exit_outside(arguments.bounds, "documentation", {result["tree"]: _bounded(result) for result in results})


def _bounded(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a tree that have bounds."""
    return {**result["answers"], "MRR": statistics.fmean(row["MRR"] for row in result["rows"]["default"].values())}


if __name__ == "__main__":
    main()
