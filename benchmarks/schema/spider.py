"""Measure grounding on Spider, compared with plain ways to rank.

    python -m benchmarks.schema.spider [--data FOLDER] [--questions N] [--misses] [--json FILE] [--bounds FILE]
        [--quick]

FOLDER has tables.json and questions.json in Spider's layout. The gold is the set of tables and columns in each
question's SQL. Every way runs through the library over the same documents and vectors; plain ways rank only the
documents of tables, or only those of columns. Weights are chosen on one part of the databases
(benchmarks.schema.tuning), and both parts are reported. `--misses` lists the misses of grounding in the tuning part.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bounds import command_with_bounds, exit_outside
from benchmarks.command import DATASETS, parse, temporary_folder, write_results
from benchmarks.quick import embedder as model_of
from benchmarks.schema.parts import TUNED_ON, parts
from benchmarks.schema.vectors import CachedVectors
from kosmos_rag import Engine, Settings, Tenant
from kosmos_rag.core.config.presets import load
from kosmos_rag.core.types import Filter
from kosmos_rag.retrieval.signals.apply import build_signal_rules
from kosmos_rag.text2sql.catalog.documents import schema_documents
from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import from_spider
from kosmos_rag.text2sql.linking.evaluation import (
    QuestionScore,
    aggregate,
    contains_all,
    contains_joins,
    r_precision,
    score_question,
)
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.sql.gold import GoldQuestion, read_questions

DATA = DATASETS / "spider"
QUICK_DATA = Path(__file__).parent / "quick"
"""Three small databases in Spider's layout, one of them without a question."""
VECTORS = Path("~/.cache/kosmos-rag/bench/schema-minilm.npz").expanduser()
MODEL = {"rag.embedding.model": "packaged:all-MiniLM-L6-v2", "rag.embedding.dimensions": 384, "models.backend": "onnx"}
_RRF = {"signals": {}, "retrieval": {"fusion": "rrf", "rrf_k": 60}}
PLAIN: dict[str, dict[str, Any]] = {
    "dense only": {"signals": {}, "retrieval": {"semantic_weight": 1.0, "keyword_weight": 0.0}},
    "BM25 only": {"signals": {}, "retrieval": {"semantic_weight": 0.0, "keyword_weight": 1.0}},
    "RRF .7/.3": _RRF,
    "schema-classic": {},
}
_PRESETS = {"schema-classic": "schema-classic"}
_AT_ONCE = 4
"""Questions that are asked at once: while one waits for the database, another one is worked on."""
FIGURES = {
    "database_first": "all databases: the right one first",
    "tables_in_5": "all tables of the SQL in the first 5",
    "tables_in_10": "in the first 10",
    "r_precision": "the question's database: R-precision of tables",
    "columns_in_5": "all columns of the SQL in the first 5, keys of joins included",
    "columns_in_10": "in the first 10",
    "asked_first": "a column that the SQL asks for is first",
    "asked_in_5": "all of them in the first 5 references",
    "asked_in_10": "in the first 10",
    "reference_precision": "returned references that the SQL uses, mean",
    "reference_recall": "asked columns that are returned, mean",
    "references": "returned references, mean",
    "joins": "the hints hold all keys of the SQL's joins",
    "joins_needed": "those between the tables that were found to be needed",
    "join_hints": "hints, mean",
    "prompt_tables": "all databases: the prompt holds all tables of the SQL",
    "prompt_tokens": "tokens of that prompt, mean",
}
Figures = Mapping[str, float]


def read_databases(folder: Path) -> list[DatabaseSchema]:
    """Read the schemas of a folder in Spider's layout. Exits with a clear word where there is no such folder."""
    if not folder.is_dir():
        raise SystemExit(f"there are no databases in Spider's layout in {folder}; name their folder: --data FOLDER")
    return from_spider(folder / "tables.json")


def parse_unread(
    parser: argparse.ArgumentParser,
) -> tuple[argparse.Namespace, list[DatabaseSchema], list[DatabaseSchema]]:
    """Parse the command line of a benchmark on databases without a question in questions.json.

    Returns it, the schemas of all databases, and those of the databases without a question.
    """
    parser.add_argument("--data", type=Path, default=DATA)
    arguments = parse(parser, data=QUICK_DATA)
    schemas = read_databases(arguments.data)
    databases = {gold.database for gold in read_questions(arguments.data / "questions.json", schemas)}
    return arguments, schemas, [schema for schema in schemas if schema.name not in databases]


def embedder(cache: Path = VECTORS, *, quick: bool = False) -> CachedVectors:
    """Return the packaged model, with vectors from the last run; for a quick run neither."""
    settings = Settings.load(overrides=MODEL)
    return CachedVectors(model_of(settings, quick=quick), temporary_folder() / "vectors.npz" if quick else cache)


def load_settings(preset: str, changed: Mapping[str, Any], database: Path) -> Settings:
    """Return settings by a preset, changed, over one embedded database."""
    base = Settings.load(overrides={**MODEL, "database.data_dir": str(database), "rag.reranking.enabled": False})
    shaped = load(preset, base, validate=build_signal_rules).apply(base)
    rag = shaped.rag
    retrieval = rag.retrieval.model_copy(update=changed.get("retrieval", {}))
    signals = changed.get("signals", rag.signals)
    return shaped.model_copy(update={"rag": rag.model_copy(update={"retrieval": retrieval, "signals": signals})})


def plain(scope: Tenant, gold: GoldQuestion) -> Figures:
    """Measure the ranking of documents by themselves for one question; without columns, nothing is said of them."""
    text = gold.question.replace('"', " ")
    condition = {"metadata.database": gold.database}
    tables = scope.search(text, 10, Filter(where={"metadata.kind": "schema_model"})).hits
    tables_found = [(hit.metadata["database"], hit.metadata["table"]) for hit in tables]
    expected = [(gold.database, table) for table in gold.tables]
    in_own = scope.search(text, 50, Filter(where={"metadata.kind": "schema_model", **condition})).hits
    measured = {
        "database_first": float(bool(tables_found) and tables_found[0][0] == gold.database),
        "tables_in_5": float(contains_all(tables_found, expected, 5)),
        "tables_in_10": float(contains_all(tables_found, expected, 10)),
        "r_precision": r_precision([hit.metadata["table"] for hit in in_own], gold.tables),
    }
    if gold.columns:
        columns = scope.search(text, 10, Filter(where={"metadata.kind": "schema_column", **condition})).hits
        refs = [(hit.metadata["table"], hit.metadata["column"]) for hit in columns]
        measured |= {f"columns_in_{k}": float(contains_all(refs, gold.columns, k)) for k in (5, 10)}
        if gold.requested_columns:
            measured["asked_first"] = float(refs[0] in gold.requested_columns if refs else 0)
            measured |= {f"asked_in_{k}": float(contains_all(refs, gold.requested_columns, k)) for k in (5, 10)}
    return measured


def means(measured: Sequence[Figures]) -> dict[str, float]:
    """Return the mean of each figure over the questions that have it."""
    rows = {name: [row[name] for row in measured if name in row] for name in FIGURES}
    return {name: statistics.fmean(values) for name, values in rows.items() if values}


def joins_of_gold(schemas: Sequence[DatabaseSchema], questions: Sequence[GoldQuestion]) -> float:
    """Return the share of joining questions whose gold keys are in the join paths of the gold tables."""
    graphs = {schema.name: JoinGraph(schema) for schema in schemas}
    return statistics.fmean(
        contains_joins(graphs[gold.database].plans(gold.tables), gold) for gold in questions if gold.joins
    )


def measured_by_question(
    schemas: Sequence[DatabaseSchema], questions: Sequence[GoldQuestion], folder: Path, model: CachedVectors
) -> tuple[list[QuestionScore], dict[str, list[Figures]]]:
    """Ask every question in every way."""
    # All settings first: a run of minutes uses the settings of its beginning.
    plain_ways = {name: load_settings(_PRESETS.get(name, "schema"), changed, folder) for name, changed in PLAIN.items()}
    with (
        Engine(load_settings("schema", {}, folder), embedder=model) as engine,
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        scope = engine.tenant("spider")
        report = scope.ingest([document for schema in schemas for document in schema_documents(schema)])
        print(
            f"{report.new} documents, {report.chunks} chunks, {len(report.failed)} failed, {report.seconds:.0f} s",
            flush=True,
        )
        scope.indexes.build()
        grounding = SchemaGrounding(scope)
        judged = list(pool.map(partial(score_question, grounding), questions))
        for part, members in parts(questions).items():
            part_scores = [score for score in judged if score.gold in members]
            print(f"grounding, {part}: {aggregate(part_scores).as_json()}", flush=True)
        model.save()
    ways: dict[str, list[Figures]] = {}
    for name, settings in plain_ways.items():
        with Engine(settings, embedder=model) as engine, ThreadPoolExecutor(_AT_ONCE) as pool:
            ways[name] = list(pool.map(partial(plain, engine.tenant("spider")), questions))
        print(f"{name} done", flush=True)
    model.save()
    return judged, ways


def main() -> None:
    """Measure and print."""
    parser = command_with_bounds(__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--questions", type=int)
    parser.add_argument("--misses", action="store_true")
    arguments = parse(parser, data=QUICK_DATA)
    schemas = read_databases(arguments.data)
    questions = [gold for gold in read_questions(arguments.data / "questions.json", schemas) if gold.tables]
    questions = questions[: arguments.questions]
    folder = temporary_folder()
    judged, ways = measured_by_question(schemas, questions, folder / "database", embedder(quick=arguments.quick))
    report: dict[str, dict[str, Figures]] = {}
    for part, members in parts(questions).items():
        databases = {gold.database for gold in members}
        positions = [at for at, gold in enumerate(questions) if gold.database in databases]
        report[part] = {name: means([rows[at] for at in positions]) for name, rows in ways.items()}
        report[part]["grounding"] = aggregate([judged[at] for at in positions]).as_json()
        show(part, report[part], len(positions), databases)
        if any(gold.joins for gold in members):
            print(f"\nThe SQL's own tables: the hints hold all keys of {joins_of_gold(schemas, members):.3f}\n")
        if arguments.misses and part == TUNED_ON:
            show_misses([judged[at] for at in positions])
    write_results(arguments.json, report)
    if arguments.questions is None:
        exit_outside(arguments.bounds, "schema.spider", {part: of["grounding"] for part, of in report.items()})


def show(part: str, ways: Mapping[str, Figures], questions: int, databases: set[str]) -> None:
    """Print a table in Markdown: figures down, ways across."""
    print(f"\n{part}: {questions} questions over {', '.join(sorted(databases))}\n")
    print("\n".join([f"| | {' | '.join(ways)} |", f"|---|{'---|' * len(ways)}"]))
    for name, label in FIGURES.items():
        form = {"prompt_tokens": ".0f", "join_hints": ".1f", "references": ".1f"}.get(name, ".3f")
        cells = [f"{way[name]:{form}}".removeprefix("0") if name in way else "-" for way in ways.values()]
        print(f"| {label} | {' | '.join(cells)} |", flush=True)


def show_misses(judged: Sequence[QuestionScore]) -> None:
    """Print the questions of which something was not found, with what."""
    for score in judged:
        checks = {
            "database_first": score.database_first,
            "tables_in_5": score.tables_in_5,
            "columns_in_10": score.columns_within(10),
            "joins": score.joins,
        }
        if missed := [name for name, is_right in checks.items() if not is_right]:
            print(f"{score.gold.database}: {score.gold.question} [{', '.join(missed)}]\n    {score.gold.sql}")


if __name__ == "__main__":
    main()
