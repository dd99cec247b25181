"""Measure grounding on 110 questions over examples/schema: quality and time.

    python -m benchmarks.schema.example [--misses] [--columns N] [--json FILE] [--quick]

A question's model counts if it is among the first three tables, and its column if it is among the first five returned
references. The share at rank 1 is measured too. A third of the questions, by a hash of their text, is held out: nothing
was tuned on it. `--columns` also measures the time with that number of generated columns.
"""

import hashlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.bounds import command_with_bounds, exit_outside
from benchmarks.command import EXAMPLES, parse, temporary_folder, write_results
from benchmarks.schema.spider import VECTORS, embedder, load_settings
from kosmos_rag import Engine
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.sources import from_json
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.linking.result import GroundingResult
from kosmos_rag.text2sql.recipes import read_recipes

EXAMPLE = EXAMPLES / "schema"
_ROUNDS = 3
_NOUNS = (
    *(
        "order",
        "invoice",
        "customer",
        "product",
        "shipment",
        "payment",
        "account",
        "ticket",
        "agent",
        "region",
        "store",
    ),
    *("supplier", "contract", "machine", "sensor", "reading", "alarm", "shift", "worker", "team", "project", "task"),
    *("budget", "asset", "vehicle", "route", "stop", "driver", "claim", "policy", "patient", "visit", "drug", "lab"),
)
_ATTRIBUTES = (
    *("name", "status", "created_at", "updated_at", "amount", "quantity", "price", "code", "kind", "comment", "rank"),
    *("weight", "height", "owner", "city", "country", "currency", "discount", "priority", "due_date", "version"),
    *("score", "rate", "duration_ms", "attempts", "source", "channel"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question with the column that it is about."""

    text: str
    category: str
    model: str
    column: str

    @property
    def held_out(self) -> bool:
        """Whether it is of the third that nothing was tuned on."""
        return int(hashlib.sha256(self.text.encode()).hexdigest()[:8], 16) % 3 == 0


def questions() -> list[Question]:
    """Read the questions."""
    listed = yaml.safe_load((Path(__file__).parent / "questions.yaml").read_text(encoding="utf-8"))
    return [
        Question(text=text, category=category, model=name.split(".")[0], column=name.split(".")[1])
        for category, entries in listed.items()
        for text, name in entries.items()
    ]


def right(result: GroundingResult, question: Question) -> tuple[bool, bool, bool]:
    """Return whether the model, whether model and column, and whether the column is found first."""
    schema = result.selection.schema if result.selection else None
    models = [table.model for entry in result.tables[:3] if schema and (table := schema.table(entry.table))]
    names = [ref.name for ref in result.schema_refs[:5]]
    expected = f"{question.model}.{question.column}"
    return question.model in models, expected in names, names[:1] == [expected]


def generated(columns: int) -> DatabaseSchema:
    """Return a schema of so many columns: tables of two nouns, each with a key to the one before."""
    tables: list[TableSchema] = []
    for number in range(columns // (len(_ATTRIBUTES) + 2)):
        nouns = len(_NOUNS)
        name = f"{_NOUNS[number % nouns]}_{_NOUNS[number // nouns % nouns]}_{number}"
        before = tables[-1].name if tables else name
        tables.append(
            TableSchema(
                name=name,
                columns=(
                    ColumnSchema(name="id", type="bigint", nullable=False),
                    ColumnSchema(name="parent_id", type="bigint"),
                    *(ColumnSchema(name=attribute, type="text") for attribute in _ATTRIBUTES),
                ),
                primary_key=("id",),
                foreign_keys=(ForeignKey(columns=("parent_id",), table=before, target=("id",)),),
            )
        )
    return DatabaseSchema(name="generated", dialect="postgresql", tables=tuple(tables))


def timing(grounding: SchemaGrounding, asked_questions: Sequence[Question]) -> dict[str, float]:
    """Return milliseconds of a question beyond its embedding, which is kept from the round before."""
    took: list[float] = []
    for number in range(_ROUNDS + 1):
        for question in asked_questions:
            began = time.perf_counter()
            result = grounding.ask(question.text)
            if number:
                took.append((time.perf_counter() - began) * 1000 - result.timings_ms.get("embed", 0.0))
    return {"p50_ms": statistics.median(took), "p95_ms": statistics.quantiles(took, n=20)[-1]}


def timing_of_many(
    columns: int, asked_questions: Sequence[Question], database: Path, *, quick: bool
) -> dict[str, float]:
    """Return the time at so many generated columns."""
    model = embedder(VECTORS.with_name("generated.npz"), quick=quick)
    with Engine(load_settings("schema", {}, database), embedder=model) as engine:
        scope = engine.tenant("large")
        grounding = SchemaGrounding(scope)
        report = grounding.build_all([generated(columns)])
        model.save()
        print(f"{report.new} documents in {report.seconds:.0f} s", flush=True)
        scope.indexes.build()
        return timing(grounding, asked_questions)


def main() -> None:
    """Measure and print."""
    parser = command_with_bounds(__doc__)
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--columns", type=int)
    arguments = parse(parser, columns=200)
    schema = from_json(EXAMPLE / "programs.json")
    recipes = read_recipes(EXAMPLE / "recipes.yaml", schema)
    asked_questions, model = questions()[:: 10 if arguments.quick else 1], embedder(quick=arguments.quick)
    report: dict[str, dict[str, float]] = {}
    folder = temporary_folder()
    with Engine(load_settings("schema", {}, folder / "database"), embedder=model) as engine:
        grounding = SchemaGrounding(engine.tenant("example"))
        grounding.build(schema, recipes)
        results = [(question, grounding.ask(question.text)) for question in asked_questions]
        for name, apart in {"tuned on": [False], "held out": [True], "all": [False, True]}.items():
            verdicts = [right(result, question) for question, result in results if question.held_out in apart]
            row = {
                "questions": len(verdicts),
                "model": share(verdicts, 0),
                "model and column": share(verdicts, 1),
                "column first": share(verdicts, 2),
            }
            report[name] = row
            print(
                f"{name:<11} {row['questions']:3} questions  model {row['model']:.3f}  "
                f"model and column {row['model and column']:.3f}  column first {row['column first']:.3f}"
            )
        for question, result in results if arguments.misses else ():
            if not all(right(result, question)) and not question.held_out:
                print(
                    f"{question.text} -> {question.model}.{question.column}: "
                    f"{[ref.name for ref in result.schema_refs[:5]]}"
                )
        report["time of the example"] = timing(grounding, asked_questions)
        print("time of the example", report["time of the example"], flush=True)
    if arguments.columns:
        report["time of the generated"] = timing_of_many(
            arguments.columns, asked_questions[:30], folder / "large", quick=arguments.quick
        )
        print("time of the generated", report["time of the generated"])
    model.save()
    write_results(arguments.json, report)
    exit_outside(arguments.bounds, "schema.example", report)


def share(verdicts: Sequence[tuple[bool, ...]], part: int) -> float:
    """Return the share of questions of which a part is found."""
    return sum(verdict[part] for verdict in verdicts) / len(verdicts)


if __name__ == "__main__":
    main()
