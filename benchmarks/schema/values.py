"""Measure whether values in a question are bound to their column, with and without typos.

    python -m benchmarks.schema.values [--data FOLDER] [--json FILE] [--quick]

There are 300 questions over 20 of Spider's databases. These have no rows, so twenty values of two or three words are
generated for each text column that is neither a key nor private. A question names the row and, in half of the
questions, the column. A typo is one letter more, less or other, or two letters in the other order. Seed, forms and
words were fixed before the first measurement. Questions are linked in memory, without vectors. A value is bound if a
filter has it on its column.
"""

import random
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path

from benchmarks.bounds import command_with_bounds, exit_outside
from benchmarks.command import parse, write_results
from benchmarks.schema.spider import DATA, QUICK_DATA, read_databases
from kosmos_rag.retrieval.expansion.synonyms import Synonyms, read_rules
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, TableSchema
from kosmos_rag.text2sql.catalog.naming import humanize, plural
from kosmos_rag.text2sql.catalog.sources.database import SampleRules
from kosmos_rag.text2sql.linking.entities import find_entities
from kosmos_rag.text2sql.linking.linking import Linker, Similarities
from kosmos_rag.text2sql.linking.name_index import NameIndex
from kosmos_rag.text2sql.linking.select import column_references, select_parts

_SEED = 0
_DATABASES, _QUESTIONS, _VALUES = 20, 300, 20
_TODAY = date(2026, 1, 1)
_FIRST = (
    *("amber", "silent", "northern", "crimson", "hollow", "golden", "bitter", "velvet", "winter", "lonely", "copper"),
    *("marble", "sudden", "eastern", "frozen", "gentle", "hidden", "ivory", "jagged", "little"),
)
_LAST = (
    *("harbour", "meadow", "lantern", "canyon", "falcon", "orchard", "thunder", "pebble", "glacier", "willow"),
    *("anchor", "beacon", "cavern", "dagger", "ember", "feather", "garnet", "hammer", "island", "juniper"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question that says a value."""

    text: str
    value: str
    table: str
    column: str


def with_values(schema: DatabaseSchema, chance: random.Random) -> DatabaseSchema:
    """Give values to the text columns that samples may be read of."""
    rules = SampleRules()

    def fill(table: TableSchema) -> TableSchema:
        columns = [
            replace(column, samples=_values(chance))
            if column.type == "text"
            and column.name not in table.key_columns
            and rules.allows(table.full_name, column.name)
            else column
            for column in table.columns
        ]
        return replace(table, columns=tuple(columns))

    return replace(schema, tables=tuple(map(fill, schema.tables)))


def _values(chance: random.Random) -> tuple[str, ...]:
    pairs = [f"{first} {last}" for first in _FIRST for last in _LAST]
    return tuple(
        value.title() if number % 2 else f"{value} {number + 1}"
        for number, value in enumerate(chance.sample(pairs, _VALUES))
    )


def with_typo(value: str, chance: random.Random) -> str:
    """Return a value with one typo in one of its letters."""
    while True:
        at = chance.choice([at for at in range(len(value) - 1) if value[at : at + 2].isalpha()])
        letter = chance.choice(string.ascii_lowercase)
        variant = chance.choice(
            [
                value[:at] + value[at + 1 :],
                value[:at] + letter + value[at:],
                value[:at] + letter + value[at + 1 :],
                value[:at] + value[at + 1] + value[at] + value[at + 2 :],
            ]
        )
        if variant.lower() != value.lower():
            return variant


def questions(schema: DatabaseSchema, count: int, chance: random.Random) -> list[Question]:
    """Return questions that say a value, half of them with the name of its column."""
    columns = [(table, column) for table in schema.tables for column in table.columns if column.samples]
    questions = []
    for number in range(count):
        table, column = chance.choice(columns)
        value = chance.choice(column.samples)
        rows = plural(humanize(table.name))
        text = f"Show all {rows} of {value}"
        if number % 2:
            text = f"How many {rows} are there with the {humanize(column.name)} {value}?"
        questions.append(Question(text=text, value=value, table=table.full_name, column=column.name))
    return questions


def bound(schema: DatabaseSchema, linker: Linker, question: Question, text: str) -> bool:
    """Return whether a filter has the value on its column."""
    entities = find_entities(text, values=linker.find_values(text), row_names=linker.row_names, today=_TODAY)
    linked = linker.link(text, entities, Similarities(tables={}, columns={}), tables=5, columns=10)
    refs = column_references(schema, linked, 10)
    filters = select_parts(schema, linker, linked, refs, question=text, entities=entities).filters
    return (question.table, question.column, question.value) in {
        (condition.table, condition.column, condition.value) for condition in filters
    }


def measure(schemas: Sequence[DatabaseSchema], count: int) -> dict[str, float]:
    """Return the shares of values that are bound."""
    chance = random.Random(_SEED)
    with as_file(files("kosmos_rag.text2sql.linking") / "hints.yaml") as path:
        hints = Synonyms(read_rules(path))
    verdicts: dict[str, list[bool]] = {"exact": [], "one typo": []}
    chosen = chance.sample(schemas, len(schemas))
    filled = [schema for schema in (with_values(schema, chance) for schema in chosen) if _has_values(schema)]
    for schema in filled[:_DATABASES]:
        linker = Linker(NameIndex([schema], hints))
        for question in questions(schema, count // len(filled[:_DATABASES]), chance):
            typo = question.text.replace(question.value, with_typo(question.value, chance))
            verdicts["exact"].append(bound(schema, linker, question, question.text))
            verdicts["one typo"].append(bound(schema, linker, question, typo))
    return {
        "questions": len(verdicts["exact"]),
        **{name: sum(entries) / len(entries) for name, entries in verdicts.items()},
    }


def _has_values(schema: DatabaseSchema) -> bool:
    return any(column.samples for table in schema.tables for column in table.columns)


def main() -> None:
    """Measure and print."""
    parser = command_with_bounds(__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    arguments = parse(parser, data=QUICK_DATA)
    report = measure(read_databases(arguments.data), 20 if arguments.quick else _QUESTIONS)
    print("  ".join(f"{name} {value:.3f}" for name, value in report.items()))
    write_results(arguments.json, report)
    exit_outside(arguments.bounds, "schema.values", {"all": report})


if __name__ == "__main__":
    main()
