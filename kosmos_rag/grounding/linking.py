"""From a question's words and the documents that were found for it to tables and columns.

A document is found for what it says as a whole. A question needs several tables, and names them by words that stand in
some names and not in others. So each word looks for the name that fits it best (the late interaction of ColBERT, Khattab
and Zaharia 2020, with words in place of vectors), in the table and in its columns; rare words count more; and a table
gains where its database has words for all of the question.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kosmos_rag.grounding.entities import Entities
from kosmos_rag.grounding.names import Floats, NameIndex, Word, total_weight
from kosmos_rag.schema.joins import JoinGraph
from kosmos_rag.schema.model import ColumnSchema, TableSchema
from kosmos_rag.schema.reading import ColumnRef
from kosmos_rag.schema.roles import is_moment, label_of

_MOST_CHOSEN = 4
_FITS = 0.6
"""Strength from which a word has its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """What each part of a score counts for."""

    words: float = 1.0
    """Share of the question's words, by rarity, that name the table or one of its columns."""
    in_columns: float = 0.8
    """What a word counts for that only a column has, beside one of the table's own name."""
    named: float = 0.5
    """Share of the table's name that the question says."""
    database: float = 1.0
    """Share of the question's words that anything in the database has."""
    meaning: float = 1.0
    """Cosine of the table's document, and that of the best of its columns'."""
    database_meaning: float = 1.0
    """The best of the two together in the database."""
    table: float = 0.5
    """What the score of its table counts for in that of a column."""
    chosen: float = 0.5
    """For tables that the question needs, and for their columns."""
    joined: float = 1.0
    """For columns by which those are joined."""
    entity: float = 0.5
    """For columns that hold names, moments or values such as the question has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Cosines of documents to the question, by what they are about."""

    tables: Mapping[tuple[str, str], float]
    """(database, full name of the table) → cosine."""
    columns: Mapping[tuple[str, str, str], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedTable:
    """A table with its score and what that is made of."""

    database: str
    table: str
    score: float
    parts: Mapping[str, float]
    """What each part adds, by its name in `Weights`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedColumn:
    """A column of the first database, with its score and what that is made of."""

    table: str
    column: str
    score: float
    parts: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Linked:
    """Tables of all databases and columns of the first one, best first."""

    tables: tuple[LinkedTable, ...]
    columns: tuple[LinkedColumn, ...]
    chosen: tuple[str, ...]
    """Tables of the first database that the question needs: those that it names, and those that its words need."""


class Linker:
    """Links questions to the names of an index. Thread-safe: it never changes."""

    def __init__(self, index: NameIndex, weights: Weights | None = None) -> None:
        self._index = index
        self._weights = weights or Weights()
        self._graphs = {name: JoinGraph(schema) for name, schema in index.schemas.items()}
        self._labels = _labels(index)
        self._moments = _flags(index, lambda _, column: is_moment(column) or column.name.lower().endswith("year"))
        self._values: dict[str, list[int]] = {}
        for at, (_, column) in enumerate(index.columns):
            for value in (*column.enum, *column.samples):
                self._values.setdefault(value.lower(), []).append(at)

    @property
    def known_values(self) -> Mapping[str, Sequence[int]]:
        """Values that columns are known to hold, in lower case."""
        return self._values

    def graph(self, database: str) -> JoinGraph:
        """Return the join graph of a database."""
        return self._graphs[database]

    def link(self, question: str, entities: Entities, evidence: Evidence, *, tables: int) -> Linked:
        """Return the best tables, and all columns of the database of the best one, by score."""
        index = self._index
        if not index.tables:
            return Linked(tables=(), columns=(), chosen=())
        words = index.words(question)
        shares = np.array([word.weight for word in words]) / total_weight(words)
        in_names, tables_said = index.tables_named(words)
        in_columns, columns_said = index.columns_named(words)
        in_tables = np.maximum(in_names, self._weights.in_columns * index.best_of_tables(in_columns))
        parts = self._table_parts(
            shares @ in_tables, tables_said, shares @ index.best_of_databases(in_tables), evidence
        )
        order = np.argsort(-_sum(parts), kind="stable")
        chosen = self._chosen(words, tables_said, np.maximum(in_names, index.best_of_tables(in_columns)), order)
        parts["chosen"] = self._weights.chosen * np.isin(np.arange(len(index.tables)), chosen)
        scores = _sum(parts)
        order = np.argsort(-scores, kind="stable")
        return Linked(
            tables=tuple(self._table(at, scores, parts) for at in order[:tables].tolist()),
            columns=self._columns(shares @ in_columns, columns_said, scores, chosen, entities, evidence),
            chosen=tuple(index.tables[at][1].full_name for at in chosen),
        )

    def _table_parts(self, words: Floats, named: Floats, database: Floats, evidence: Evidence) -> dict[str, Floats]:
        weights, index = self._weights, self._index
        found = [*evidence.tables.values(), *evidence.columns.values()]
        # What was not found is no nearer to the question than the last that was.
        own = np.full(len(index.tables), min(found, default=0.0))
        columns = np.full(len(index.columns), min(found, default=0.0))
        for key, cosine in evidence.tables.items():
            if (at := index.of_table.get(key)) is not None:
                own[at] = cosine
        for (name, table, column), cosine in evidence.columns.items():
            place = index.of_column.get((index.of_table.get((name, table), -1), column))
            if place is not None:
                columns[place] = cosine
        meaning = own + index.best_of_tables(columns)
        return {
            "words": weights.words * words,
            "named": weights.named * named,
            "database": weights.database * database,
            "meaning": weights.meaning * meaning,
            "database_meaning": weights.database_meaning * index.best_of_databases(meaning),
        }

    def _table(self, at: int, scores: Floats, parts: Mapping[str, Floats]) -> LinkedTable:
        name, table = self._index.tables[at]
        return LinkedTable(
            database=name,
            table=table.full_name,
            score=float(scores[at]),
            parts={part: float(values[at]) for part, values in parts.items() if values[at]},
        )

    def _chosen(self, words: Sequence[Word], named: Floats, strengths: Floats, order: Floats) -> list[int]:
        """Return the tables of the best one's database that are named, or have words that the others lack."""
        database = self._index.database_of_table
        own = [at for at in order.tolist() if database[at] == database[order[0]]]
        chosen = [own[0], *(at for at in own[1:] if named[at] >= 2 / 3)][:_MOST_CHOSEN]
        for row in sorted(range(len(words)), key=lambda row: -words[row].weight):
            if len(chosen) == _MOST_CHOSEN:
                break
            if strengths[row, chosen].max() < _FITS:
                chosen += [at for at in own if strengths[row, at] >= _FITS][:1]
        return chosen

    def _columns(
        self,
        words: Floats,
        named: Floats,
        of_tables: Floats,
        chosen: Sequence[int],
        entities: Entities,
        evidence: Evidence,
    ) -> tuple[LinkedColumn, ...]:
        """Return the columns of the chosen tables' database, best first."""
        index, weights = self._index, self._weights
        name = index.tables[chosen[0]][0]
        first = index.database_of_table[chosen[0]]
        own = np.flatnonzero(index.database_of_table[index.table_of_column] == first)
        tables = index.table_of_column[own]
        joined = self._joined(name, [index.tables[at][1].full_name for at in chosen])
        refs = [
            (index.tables[table][1].full_name, index.columns[at][1].name) for at, table in zip(own, tables, strict=True)
        ]
        least = min(evidence.columns.values(), default=0.0)
        parts = {
            "words": words[own],
            "named": named[own],
            "table": weights.table * of_tables[tables],
            "chosen": weights.chosen * np.isin(tables, chosen),
            "joined": weights.joined * np.array([ref in joined for ref in refs], dtype=float),
            "entity": weights.entity * self._holding(entities)[own],
            "meaning": weights.meaning * np.array([evidence.columns.get((name, *ref), least) for ref in refs]),
        }
        scores = _sum(parts)
        return tuple(
            LinkedColumn(
                table=refs[at][0],
                column=refs[at][1],
                score=float(scores[at]),
                parts={part: float(values[at]) for part, values in parts.items() if values[at]},
            )
            for at in np.argsort(-scores, kind="stable").tolist()
        )

    def _holding(self, entities: Entities) -> Floats:
        """Return 1 for each column that may hold what the question names."""
        found = np.zeros(len(self._index.columns))
        if entities.quoted or entities.names:
            found = np.maximum(found, self._labels)
        if entities.dates:
            found = np.maximum(found, self._moments)
        for value in entities.values:
            found[self._values[value]] = 1.0
        return found

    def _joined(self, database: str, tables: Sequence[str]) -> set[ColumnRef]:
        found: set[ColumnRef] = set()
        for plan in self._graphs[database].plans(tables):
            for join in plan.paths[0].joins:
                found.update((join.table, column) for column in join.key.columns)
                found.update((join.key.table, column) for column in join.key.target)
        return found


def _sum(parts: Mapping[str, Floats]) -> Floats:
    total: Floats = np.sum(list(parts.values()), axis=0)
    return total


def _labels(index: NameIndex) -> Floats:
    labels = [label_of(table) for _, table in index.tables]
    return np.array([float(labels[table] is column) for table, column in index.columns])


def _flags(index: NameIndex, holds: Callable[[TableSchema, ColumnSchema], bool]) -> Floats:
    return np.array([float(holds(index.tables[table][1], column)) for table, column in index.columns])
