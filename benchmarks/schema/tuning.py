"""Choose the weights of grounding on one part of Spider, and judge them on the other.

    python -m benchmarks.schema.tuning [--data FOLDER] [--quick]

Every weight begins at 1. One after the other gets the value of a grid that is best for the mean of the seven figures
over the questions of the first part, twice around; among equal values the earlier one stays. The held-out part is
measured once, with the chosen weights and with the defaults, each with hints.yaml and without. The search does not
depend on weights, so it runs once, through the library; everything after it runs in memory.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path

from benchmarks.command import command, parse, temporary_folder
from benchmarks.schema.parts import HELD_OUT, TUNED_ON, parts
from benchmarks.schema.spider import DATA, QUICK_DATA, embedder, load_settings, read_databases
from kosmos_rag import Engine, Tenant
from kosmos_rag.core.types import Filter
from kosmos_rag.retrieval.expansion.synonyms import Synonyms, read_rules
from kosmos_rag.text2sql.catalog.documents import schema_documents
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.linking.entities import find_entities
from kosmos_rag.text2sql.linking.evaluation import contains_all, contains_joins, r_precision
from kosmos_rag.text2sql.linking.linking import Linker, Similarities
from kosmos_rag.text2sql.linking.name_index import NameIndex
from kosmos_rag.text2sql.linking.weights import Weights
from kosmos_rag.text2sql.records import Entities
from kosmos_rag.text2sql.sql.gold import GoldQuestion, read_questions

GRID = (0.0, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0)
_ROUNDS = 2
_TODAY = date(2026, 1, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A question with what was searched for it."""

    gold: GoldQuestion
    entities: Entities
    every: Similarities
    """Over all databases."""
    own_database: Similarities
    """Over the question's own."""


class Measure:
    """Figures of weights over cases."""

    def __init__(self, schemas: Sequence[DatabaseSchema], databases: set[str], synonyms: Synonyms) -> None:
        self._every = NameIndex(schemas, synonyms)
        self._indexes = {schema.name: NameIndex([schema], synonyms) for schema in schemas if schema.name in databases}

    def __call__(self, weights: Weights, cases: Sequence[Case]) -> dict[str, float]:
        """Return the mean of each figure over the cases that have it."""
        every = Linker(self._every, weights)
        linkers = {name: Linker(index, weights) for name, index in self._indexes.items()}
        measured = [_measured(case, every, linkers[case.gold.database]) for case in cases]
        names = dict.fromkeys(name for row in measured for name in row)
        return {name: statistics.fmean(row[name] for row in measured if name in row) for name in names}


def _measured(case: Case, every: Linker, own_linker: Linker) -> dict[str, float]:
    gold = case.gold
    over_all = every.link(gold.question, case.entities, case.every, tables=10, columns=1)
    ranking = [(table.database, table.table) for table in over_all.tables]
    expected = [(gold.database, table) for table in gold.tables]
    over_own = own_linker.link(gold.question, case.entities, case.own_database, tables=len(gold.tables), columns=10)
    columns = [(column.table, column.column) for column in over_own.columns]
    measured = {
        "database_first": float(ranking[0][0] == gold.database),
        "tables_in_5": float(contains_all(ranking, expected, 5)),
        "tables_in_10": float(contains_all(ranking, expected, 10)),
        "r_precision": r_precision([table.table for table in over_own.tables], gold.tables),
    }
    if gold.columns:
        measured |= {f"columns_in_{k}": float(contains_all(columns, gold.columns, k)) for k in (5, 10)}
    if gold.joins:
        measured["joins"] = float(contains_joins(own_linker.graph(gold.database).plans(over_own.chosen), gold))
    return measured


def searched(scope: Tenant, gold: GoldQuestion) -> Case:
    """Search for a question as `SchemaGrounding.ask` does."""
    text = gold.question.replace('"', " ")
    condition = Filter(where={"metadata.database": gold.database})
    return Case(
        gold=gold,
        entities=find_entities(gold.question, today=_TODAY),
        every=Similarities.from_hits(scope.search(text).hits),
        own_database=Similarities.from_hits(scope.search(text, filter=condition).hits),
    )


def chosen(worth: Callable[[Weights], float]) -> Weights:
    """Return the weights that coordinate ascent over the grid comes to."""
    names = [field.name for field in fields(Weights)]
    best = Weights(**dict.fromkeys(names, 1.0))
    most = worth(best)
    for _ in range(_ROUNDS):
        for name in names:
            for value in GRID:
                trial = replace(best, **{name: value})
                if trial != best and (score := worth(trial)) > most + 1e-9:
                    best, most = trial, score
            print(f"{name} {getattr(best, name)}: {most:.4f}", flush=True)
    return best


def main() -> None:
    """Choose and print."""
    parser = command(__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    arguments = parse(parser, data=QUICK_DATA)
    schemas = read_databases(arguments.data)
    questions = [gold for gold in read_questions(arguments.data / "questions.json", schemas) if gold.tables]
    model = embedder(quick=arguments.quick)
    with Engine(load_settings("schema", {}, temporary_folder() / "database"), embedder=model) as engine:
        scope = engine.tenant("spider")
        scope.ingest([document for schema in schemas for document in schema_documents(schema)])
        scope.indexes.build()
        split = parts(questions)
        cases = {part: [searched(scope, gold) for gold in split[part]] for part in (TUNED_ON, HELD_OUT)}
    model.save()
    with as_file(files("kosmos_rag.text2sql.linking") / "hints.yaml") as path:
        hints = Synonyms(read_rules(path))
    databases = {gold.database for gold in questions}
    measure = Measure(schemas, databases, hints)
    best = chosen(lambda weights: statistics.fmean(measure(weights, cases[TUNED_ON]).values()))
    print(best)
    plain = Measure(schemas, databases, Synonyms([]))
    rows = {
        "chosen": (measure, best),
        "defaults": (measure, Weights()),
        "defaults, no hints": (plain, Weights()),
        "chosen, no hints": (plain, best),
    }
    for part in (TUNED_ON, HELD_OUT):
        for name, (way, weights) in rows.items():
            figures = way(weights, cases[part])
            figures["mean"] = statistics.fmean(figures.values())
            print(f"{part:<9} {name:<19} " + "  ".join(f"{figure} {value:.3f}" for figure, value in figures.items()))


if __name__ == "__main__":
    main()
