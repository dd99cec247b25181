"""Measure grounding on the databases of several sets, each set in an index of its own.

    python -m benchmarks.schema.transfer [--sets NAME,NAME] [--questions N] [--json FILE] [--misses] [--quick]

The sets are Spider, KaggleDBQA and AmbiDB. Questions whose SQL does not fit the tables of its set are left out; their
number is printed. `--questions N` takes N questions of each set, from all of its databases. Every question counts the
same within its set; the mean over sets counts every set the same.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.command import command, parse, temporary_folder, write_results
from benchmarks.schema import spider
from benchmarks.schema.sets import FOLDERS, QuestionSet, read_set
from benchmarks.schema.spider import QUICK_DATA, embedder, load_settings, show_misses
from kosmos_rag import Engine
from kosmos_rag.text2sql.catalog.documents import schema_documents
from kosmos_rag.text2sql.linking.evaluation import QuestionScore, aggregate, score_question
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.sql.gold import GoldQuestion

FIGURES = {
    name: spider.FIGURES[name]
    for name in (
        *("database_first", "tables_in_5", "tables_in_10", "r_precision"),
        *("columns_in_5", "columns_in_10", "asked_first", "reference_recall"),
        *("reference_precision", "references", "joins", "join_hints"),
    )
}


def sample(questions: Sequence[GoldQuestion], size: int | None) -> list[GoldQuestion]:
    """Return questions at equal distances, which are of all databases; None returns all."""
    if size is None or size >= len(questions):
        return list(questions)
    by_database = sorted(questions, key=lambda gold: gold.database)
    return [by_database[at * len(by_database) // size] for at in range(size)]


def score_set(members: QuestionSet, questions: Sequence[GoldQuestion], *, quick: bool) -> list[QuestionScore]:
    """Ask the questions over all databases of their set, and over their own."""
    model = embedder(quick=quick)
    with Engine(load_settings("schema", {}, temporary_folder() / "database"), embedder=model) as engine:
        tenant = engine.tenant("transfer")
        tenant.ingest([document for schema in members.schemas for document in schema_documents(schema)])
        tenant.indexes.build()
        grounding = SchemaGrounding(tenant)
        scores = [score_question(grounding, gold) for gold in questions]
        model.save()
    return scores


def show(report: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table in Markdown: figures down, sets across."""
    print("\n".join([f"| | {' | '.join(report)} |", f"|---|{'---|' * len(report)}"]))
    for name, label in FIGURES.items():
        form = ".1f" if name in ("join_hints", "references") else ".3f"
        cells = [f"{row[name]:{form}}".removeprefix("0") if name in row else "-" for row in report.values()]
        print(f"| {label} | {' | '.join(cells)} |")


def _folders(arguments: argparse.Namespace) -> Mapping[str, Path]:
    if arguments.quick:
        return {"quick": QUICK_DATA}
    if unknown := [name for name in arguments.sets if name not in FOLDERS]:
        raise SystemExit(f"there is no set {', '.join(unknown)}; the sets are {', '.join(FOLDERS)}")
    return {name: FOLDERS[name] for name in arguments.sets}


def main() -> None:
    """Measure and print."""
    parser = command(__doc__)
    parser.add_argument("--sets", type=lambda names: names.split(","), default=list(FOLDERS))
    parser.add_argument("--questions", type=int)
    parser.add_argument("--misses", action="store_true")
    arguments = parse(parser)
    report: dict[str, Mapping[str, float]] = {}
    for name, folder in _folders(arguments).items():
        members = read_set(name, folder)
        questions = sample(members.questions, arguments.questions)
        databases = len({gold.database for gold in questions})
        print(
            f"{name}: {len(members.schemas)} databases, {len(questions)} questions about {databases} of them; "
            f"{members.unfit} left out, whose SQL does not fit the tables",
            flush=True,
        )
        scores = score_set(members, questions, quick=arguments.quick)
        report[name] = aggregate(scores).as_json()
        if arguments.misses:
            show_misses(scores)
    print()
    show(report)
    write_results(arguments.json, report)


if __name__ == "__main__":
    main()
