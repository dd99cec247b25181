"""Measure whether join hints have the needed keys, on databases with unread questions.

    python -m benchmarks.schema.joins [--data FOLDER] [--bounds FILE] [--quick]

Questions are generated from the schemas of Spider's databases that have none in questions.json. A question names the
asked columns, and not a table that only joins. The seed and the four forms below were fixed before the first
measurement, and nothing was changed after it. Vectors are of the packaged model. Each database is linked in memory,
which gives the results of `SchemaGrounding` if a database has no more documents than a search returns.
"""

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.resources import as_file, files

from benchmarks.bounds import command_with_bounds, exit_outside
from benchmarks.schema.spider import embedder, parse_unread
from benchmarks.schema.vectors import CachedVectors
from kosmos_rag.ingestion.document import ChunkText, embedding_texts
from kosmos_rag.retrieval.expansion.synonyms import Synonyms, read_rules
from kosmos_rag.text2sql.catalog.documents import schema_documents
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.naming import humanize, plural, singular
from kosmos_rag.text2sql.catalog.roles import foreign_keys_with_targets, label_column
from kosmos_rag.text2sql.linking.entities import find_entities
from kosmos_rag.text2sql.linking.evaluation import join_column_pairs
from kosmos_rag.text2sql.linking.linking import Linker, Similarities
from kosmos_rag.text2sql.linking.name_index import NameIndex
from kosmos_rag.text2sql.linking.select import column_references, select_parts
from kosmos_rag.text2sql.records import ColumnRef

_SEED = 0
_FOUND = 50
_TODAY = date(2026, 1, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A generated question with the keys that its tables are joined by."""

    form: str
    text: str
    keys: frozenset[frozenset[ColumnRef]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the hints held."""

    form: str
    needed: bool
    """Those between the tables that were found to be needed hold all keys."""
    all: bool
    """Those to the next table included."""
    hints: int
    right: int
    """Hints that are among the keys."""


def generated(schema: DatabaseSchema, chance: random.Random) -> Iterator[Question]:
    """Give at most one question of each form."""
    keys = [(table, key, parent) for table in schema.tables for key, parent in foreign_keys_with_targets(schema, table)]
    pairs = [(*entry, _pick_column(entry[0], chance), _pick_column(entry[2], chance)) for entry in keys]
    pairs = [entry for entry in pairs if entry[3] and entry[4]]
    if pairs:
        child, key, _, child_column, other = chance.choice(pairs)
        yield _question("columns of both", f"Show the {child_column} and the {other}.", (child, key))
        child, key, _, _, other = chance.choice(pairs)
        yield _question("rows of one", f"What is the {other} of each {_row(child)}?", (child, key))
        child, key, _, _, other = chance.choice(pairs)
        yield _question("counted", f"How many {plural(_row(child))} are there for each {other}?", (child, key))
    bridges = [
        (table, first, second)
        for table in schema.tables
        for first in foreign_keys_with_targets(schema, table)
        for second in foreign_keys_with_targets(schema, table)
        if first[1].full_name < second[1].full_name and label_column(first[1]) and label_column(second[1])
    ]
    if bridges:
        table, (first_key, first_table), (second_key, second_table) = chance.choice(bridges)
        text = f"Which {_label(first_table)} go with which {_label(second_table)}?"
        yield _question("over a bridge", text, (table, first_key), (table, second_key))


def _question(form: str, text: str, *keys: tuple[TableSchema, ForeignKey]) -> Question:
    pairs = (
        frozenset(((table.full_name, source), (key.table, target)))
        for table, key in keys
        for source, target in zip(key.columns, key.target, strict=True)
    )
    return Question(form=form, text=text, keys=frozenset(pairs))


def _pick_column(table: TableSchema, chance: random.Random) -> str:
    plain = [column for column in table.columns if column.name not in table.key_columns]
    return _name(chance.choice(plain)) if plain else ""


def _name(column: ColumnSchema) -> str:
    return column.aliases[0] if column.aliases else humanize(column.name)


def _label(table: TableSchema) -> str:
    label = label_column(table)
    return _name(label) if label else ""


def _row(table: TableSchema) -> str:
    words = (table.aliases[0] if table.aliases else humanize(table.name)).split()
    return " ".join([*words[:-1], singular(words[-1])])


def outcomes(
    schema: DatabaseSchema, questions: Sequence[Question], model: CachedVectors, hints: Synonyms
) -> list[Outcome]:
    """Ask questions of one database."""
    documents = list(schema_documents(schema))
    pieces = [
        ChunkText(title=document.title or "", source=document.source, section=(), text=document.data.decode())
        for document in documents
    ]
    vectors = model.embed(embedding_texts(pieces, model.tokenizer)[0])
    linker = Linker(NameIndex([schema], hints))
    results = []
    for question in questions:
        cosines = vectors @ model.embed_query(question.text)
        nearest = sorted(range(len(documents)), key=lambda at: -cosines[at])[:_FOUND]
        tables, columns = {}, {}
        for at in nearest:
            metadata = documents[at].metadata
            if metadata["kind"] == "schema_model":
                tables[metadata["database"], metadata["table"]] = float(cosines[at])
            else:
                columns[metadata["database"], metadata["table"], metadata["column"]] = float(cosines[at])
        entities = find_entities(question.text, values=linker.find_values(question.text), today=_TODAY)
        evidence = Similarities(tables=tables, columns=columns)
        linked = linker.link(question.text, entities, evidence, tables=5, columns=10)
        selection = select_parts(
            schema,
            linker,
            linked,
            column_references(schema, linked, 10),
            question=question.text,
            entities=entities,
        )
        every = join_column_pairs(selection.plans, selection.further)
        results.append(
            Outcome(
                form=question.form,
                needed=question.keys <= join_column_pairs(selection.plans),
                all=question.keys <= every,
                hints=len(selection.join_hints),
                right=len(question.keys & every),
            )
        )
    return results


def main() -> None:
    """Generate, measure and print."""
    arguments, _, unread = parse_unread(command_with_bounds(__doc__))
    with as_file(files("kosmos_rag.text2sql.linking") / "hints.yaml") as path:
        hints = Synonyms(read_rules(path))
    model, chance = embedder(quick=arguments.quick), random.Random(_SEED)
    results: list[Outcome] = []
    for schema in unread:
        if questions := list(generated(schema, chance)):
            results += outcomes(schema, questions, model, hints)
    figures = {}
    for form in (*dict.fromkeys(outcome.form for outcome in results), "all"):
        form_outcomes = [outcome for outcome in results if form in (outcome.form, "all")]
        needed, complete = (
            statistics.fmean(getattr(outcome, name) for outcome in form_outcomes) for name in ("needed", "all")
        )
        hints_given, right = (sum(getattr(outcome, name) for outcome in form_outcomes) for name in ("hints", "right"))
        print(
            f"{form:<16} {len(form_outcomes):4} questions  needed tables {needed:.3f}  with the next {complete:.3f}  "
            f"hints {hints_given / len(form_outcomes):.2f}, right {right / max(hints_given, 1):.3f}"
        )
        figures[form] = {"needed tables": needed, "with the next": complete}
    model.save()
    exit_outside(arguments.bounds, "schema.joins", figures)


if __name__ == "__main__":
    main()
