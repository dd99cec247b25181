"""Measure whether the right database is found first, on databases with unread questions.

    python -m benchmarks.schema.databases [--data FOLDER] [--json FILE] [--quick]

There are 700 questions of ten forms, generated from the schemas of Spider's databases that have none in questions.json.
A question names tables and columns as people read them, and never its database. The evidence for a database was chosen
on these questions and on the tuned half of Spider, so their figures compare designs.
"""

import random
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.command import command, temporary_folder, write_results
from benchmarks.schema.spider import embedder, load_settings, parse_unread
from kosmos_rag import Engine
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, TableSchema
from kosmos_rag.text2sql.catalog.naming import humanize, plural, singular
from kosmos_rag.text2sql.catalog.roles import foreign_keys_with_targets
from kosmos_rag.text2sql.linking.evaluation import contains_all
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding

_SEED = 7
_QUESTIONS = 700
_AT_ONCE = 4
_VALUES = (
    *("Maria Lopez", "Berlin", "Kolob", "Smith", "Oakland"),
    *("Blue Star", "David", "Tokyo", "Walter Hill", "Green"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A generated question with the tables that it is about."""

    text: str
    database: str
    tables: tuple[str, ...]


def _plain(table: TableSchema) -> list[str]:
    return [humanize(column.name) for column in table.columns if column.name not in table.key_columns]


def _row(table: TableSchema) -> str:
    return singular(humanize(table.name))


def generated(schema: DatabaseSchema, chance: random.Random) -> Iterator[Question]:
    """Give one question of each form that the schema has the tables for."""
    tables = [table for table in schema.tables if _plain(table)]
    if not tables:
        return
    pairs = [
        (table, parent)
        for table in tables
        for _, parent in foreign_keys_with_targets(schema, table)
        if parent is not table and parent in tables
    ]

    def question(text: str, *about: TableSchema) -> Question:
        return Question(text=text, database=schema.name, tables=tuple(table.full_name for table in about))

    for form in range(6):
        table = chance.choice(tables)
        columns = chance.sample(_plain(table), min(3, len(_plain(table))))
        rows, first, last = plural(_row(table)), columns[0], columns[-1]
        value = chance.choice(_VALUES) if form == 2 else ""
        yield question(
            (
                f"How many {rows} are there?",
                f"What are the {plural(first)} and {plural(last)} of all {rows}?",
                f"List the {first} of the {_row(table)} whose {last} is {value}.",
                f"What is the average {first} of {rows}?",
                f"Show the {first} with the most {rows}.",
                f"What are the different {plural(first)}, ordered by {last}?",
            )[form],
            table,
        )
    for form in range(4) if pairs else ():
        child, parent = chance.choice(pairs)
        rows, row = plural(_row(child)), _row(parent)
        child_column = chance.choice(_plain(child)) if form in (1, 2) else ""
        parent_column = chance.choice(_plain(parent)) if form != 3 else ""
        value = chance.choice(_VALUES) if form == 2 else ""
        yield question(
            (
                f"Find the {parent_column} of the {row} that has the most {rows}.",
                f"Show the {child_column} and the {parent_column}.",
                f"What are the {child_column} of {rows} whose {row} has the {parent_column} {value}?",
                f"How many {rows} does each {row} have?",
            )[form],
            child,
            parent,
        )


def measure(grounding: SchemaGrounding, questions: Sequence[Question]) -> dict[str, float]:
    """Return the shares of questions whose database is first and whose tables are found."""

    def judge(question: Question) -> tuple[bool, bool, bool]:
        result = grounding.ask(question.text, 1, tables=10)
        tables = [(table.database, table.table) for table in result.tables]
        expected = [(question.database, table) for table in question.tables]
        return (
            result.database == question.database,
            contains_all(tables, expected, 5),
            contains_all(tables, expected, 10),
        )

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = list(pool.map(judge, questions))
    names = ("database_first", "tables_in_5", "tables_in_10")
    return {name: statistics.fmean(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def main() -> None:
    """Generate, measure and print."""
    arguments, schemas, unread = parse_unread(command(__doc__))
    chance = random.Random(_SEED)
    every = [question for schema in unread for question in generated(schema, chance)]
    questions = chance.sample(every, min(_QUESTIONS, len(every)))
    model = embedder(quick=arguments.quick)
    with Engine(load_settings("schema", {}, temporary_folder() / "database"), embedder=model) as engine:
        grounding = SchemaGrounding(engine.tenant("spider"))
        grounding.build_all(schemas)
        engine.tenant("spider").indexes.build()
        figures = measure(grounding, questions)
    model.save()
    print(f"{len(questions)} questions  " + "  ".join(f"{name} {value:.3f}" for name, value in figures.items()))
    write_results(arguments.json, {"questions": len(questions), **figures})


if __name__ == "__main__":
    main()
