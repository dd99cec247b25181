"""Which tables and columns does a question need? Grounding on Spider, beside plain ways to rank.

    python -m benchmarks.schema.spider [--data FOLDER] [--questions N] [--json FILE]

FOLDER holds tables.json and questions.json in Spider's layout. The gold is what each question's SQL uses. Plain ways
rank the documents of tables, or those of columns, by themselves; all ways have the same documents and vectors.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.schema.vectors import KeptVectors
from kosmos_rag import Engine, Settings, TenantScope
from kosmos_rag.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.grounding import SchemaGrounding
from kosmos_rag.grounding.evaluation import evaluate, holds_all, keys_of, r_precision
from kosmos_rag.presets import load
from kosmos_rag.records import Filter
from kosmos_rag.schema.documents import schema_documents
from kosmos_rag.schema.gold import GoldQuestion, read_questions
from kosmos_rag.schema.joins import JoinGraph
from kosmos_rag.schema.model import DatabaseSchema
from kosmos_rag.schema.sources import from_spider

DATA = Path(__file__).parents[3] / "shared" / "datasets" / "spider"
VECTORS = Path("~/.cache/kosmos-rag/bench/schema-minilm.npz").expanduser()
MODEL = {"rag.embedding.model": "packaged:all-MiniLM-L6-v2", "rag.embedding.dimensions": 384, "models.backend": "onnx"}
_RRF = {"signals": {}, "retrieval": {"fusion": "rrf", "rrf_k": 60}}
PLAIN: dict[str, dict[str, Any]] = {
    "dense only": {"signals": {}, "retrieval": {"semantic_weight": 1.0, "keyword_weight": 0.0}},
    "BM25 only": {"signals": {}, "retrieval": {"semantic_weight": 0.0, "keyword_weight": 1.0}},
    "plain RRF .7/.3": _RRF,
    "schema-classic": {},
}


def embedder() -> KeptVectors:
    """Return the packaged model, with vectors from the last run."""
    settings = Settings.load(overrides=MODEL)
    return KeptVectors(SentenceTransformerEmbedder(settings.rag.embedding, settings.models), VECTORS)


def settings_of(preset: str, changed: Mapping[str, Any], database: Path) -> Settings:
    """Return settings by a preset, changed, over one embedded database."""
    base = Settings.load(overrides={**MODEL, "database.data_dir": str(database), "rag.reranking.enabled": False})
    shaped = load(preset, base).over(base)
    rag = shaped.rag
    retrieval = rag.retrieval.model_copy(update=changed.get("retrieval", {}))
    signals = changed.get("signals", rag.signals)
    return shaped.model_copy(update={"rag": rag.model_copy(update={"retrieval": retrieval, "signals": signals})})


def plain(scope: TenantScope, questions: Sequence[GoldQuestion]) -> dict[str, float]:
    """Measure the ranking of documents by themselves."""
    rows: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        rows.setdefault(name, []).append(value)

    for gold in questions:
        text = gold.question.replace('"', " ")
        own = {"metadata.database": gold.database}
        tables = scope.retrieve(text, 10, Filter(where={"metadata.kind": "schema_model"})).hits
        found = [(hit.metadata["database"], hit.metadata["table"]) for hit in tables]
        wanted = [(gold.database, table) for table in gold.tables]
        note("database_first", bool(found) and found[0][0] == gold.database)
        note("tables_in_5", holds_all(found, wanted, 5))
        note("tables_in_10", holds_all(found, wanted, 10))
        tables = scope.retrieve(text, 50, Filter(where={"metadata.kind": "schema_model", **own})).hits
        note("r_precision", r_precision([hit.metadata["table"] for hit in tables], gold.tables))
        if gold.columns:
            columns = scope.retrieve(text, 10, Filter(where={"metadata.kind": "schema_column", **own})).hits
            refs = [(hit.metadata["table"], hit.metadata["column"]) for hit in columns]
            note("columns_in_5", holds_all(refs, gold.columns, 5))
            note("columns_in_10", holds_all(refs, gold.columns, 10))
    return {name: statistics.fmean(values) for name, values in rows.items()}


def joins_of_gold(schemas: Sequence[DatabaseSchema], questions: Sequence[GoldQuestion]) -> float:
    """Return the share of joining questions whose gold keys are in the join paths of the gold tables."""
    graphs = {schema.name: JoinGraph(schema) for schema in schemas}
    joining = [gold for gold in questions if gold.joins]
    held = (
        {frozenset(pair) for pair in gold.joins} <= keys_of(graphs[gold.database].plans(gold.tables))
        for gold in joining
    )
    return sum(held) / len(joining)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--questions", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    schemas = from_spider(arguments.data / "tables.json")
    questions = read_questions(arguments.data / "questions.json", schemas)[: arguments.questions]
    model = embedder()
    report: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "database"
        with Engine(settings_of("schema", {}, database), embedder=model) as engine:
            scope = engine.tenant("spider")
            done = scope.ingest([document for schema in schemas for document in schema_documents(schema)])
            print(
                f"{done.new} documents, {done.chunks} chunks, {len(done.failed)} failed, {done.seconds:.0f} s",
                flush=True,
            )
            engine.tenant("spider").indexes.build()
            report["grounding"] = evaluate(SchemaGrounding(scope), questions).as_json()
            show("grounding", report["grounding"])
            model.save()
        for name, changed in PLAIN.items():
            preset = name if name == "schema-classic" else "schema"
            with Engine(settings_of(preset, changed, database), embedder=model) as engine:
                report[name] = plain(engine.tenant("spider"), questions)
                show(name, report[name])
        report["gold tables"] = {"joins": joins_of_gold(schemas, questions)}
        show("gold tables", report["gold tables"])
    model.save()
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def show(name: str, figures: Mapping[str, float]) -> None:
    """Print one row."""
    print(f"{name:<16} " + "  ".join(f"{key} {value:.3f}" for key, value in figures.items()), flush=True)


if __name__ == "__main__":
    main()
