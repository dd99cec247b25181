"""From a question's words and the documents that were found for it to tables and columns.

A document is found for what it says as a whole. A question needs several tables, and names them by words that stand
in some names and not in others. So each word looks for the name that fits it best (the late interaction of ColBERT,
Khattab and Zaharia 2020, with words in place of vectors), in the table and its columns; rare words count more; a table
gains where its database has words for all of the question.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np

from kosmos_rag.core.types import Passage
from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.catalog.model import ColumnSchema, TableSchema
from kosmos_rag.text2sql.catalog.roles import is_moment, label_of
from kosmos_rag.text2sql.linking.entities import Entities
from kosmos_rag.text2sql.linking.name_index import Floats, NameIndex, Word, total_weight

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
    """For columns that may hold names or moments such as the question has."""
    value: float = 1.0
    """For columns that are known to hold a value that the question says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Cosines of documents to the question, by what they are about."""

    tables: Mapping[tuple[str, str], float]
    """(database, full name of the table) → cosine."""
    columns: Mapping[tuple[str, str, str], float]

    @classmethod
    def of(cls, hits: Iterable[Passage]) -> Self:
        """Return the cosines of what was found; what only words found has none."""
        tables, columns = {}, {}
        for hit in hits:
            said = hit.metadata
            if hit.dense_score is None:
                continue
            if said.get("kind") == "schema_model":
                tables[said["database"], said["table"]] = hit.dense_score
            elif said.get("kind") == "schema_column":
                columns[said["database"], said["table"], said["column"]] = hit.dense_score
        return cls(tables=tables, columns=columns)


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

    def link(
        self, question: str, entities: Entities, evidence: Evidence, *, tables: int, columns: int | None = None
    ) -> Linked:
        """Return the best tables, and the best columns of the database of the first, or all of them."""
        index = self._index
        if not index.tables:
            return Linked(tables=(), columns=(), chosen=())
        words = index.words(question)
        shares = np.array([word.weight for word in words]) / total_weight(words)
        in_names, tables_said = index.tables_named(words)
        in_columns, columns_said = index.columns_named(words)
        in_tables = np.maximum(in_names, self._weights.in_columns * index.best_of_tables(in_columns))
        own, of_columns = self._cosines(evidence)
        meaning = own + index.best_of_tables(of_columns)
        of_databases = index.best_of_databases(in_tables)
        parts = self._table_parts(shares @ in_tables, tables_said, shares @ of_databases, meaning)
        order = _best_first(_sum(parts))
        chosen = self._chosen(words, tables_said, np.maximum(in_names, index.best_of_tables(in_columns)), order)
        needed = np.zeros(len(index.tables))
        needed[chosen] = 1.0
        parts["chosen"] = self._weights.chosen * needed
        scores = _sum(parts)
        return Linked(
            tables=tuple(self._table(at, scores, parts) for at in _best_first(scores, tables)),
            columns=self._columns(
                shares @ in_columns, columns_said, scores, chosen, entities, of_columns, columns or len(index.columns)
            ),
            chosen=tuple(index.tables[at][1].full_name for at in chosen),
        )

    def _table_parts(self, words: Floats, named: Floats, database: Floats, meaning: Floats) -> dict[str, Floats]:
        weights = self._weights
        return {
            "words": weights.words * words,
            "named": weights.named * named,
            "database": weights.database * database,
            "meaning": weights.meaning * meaning,
            "database_meaning": weights.database_meaning * self._index.best_of_databases(meaning),
        }

    def _cosines(self, evidence: Evidence) -> tuple[Floats, Floats]:
        """Return the cosine of each table's document and of each column's."""
        index = self._index
        # What was not found is no nearer to the question than the last that was.
        least = min([*evidence.tables.values(), *evidence.columns.values()], default=0.0)
        tables, columns = np.full(len(index.tables), least), np.full(len(index.columns), least)
        for key, cosine in evidence.tables.items():
            if (at := index.of_table.get(key)) is not None:
                tables[at] = cosine
        for (name, table, column), cosine in evidence.columns.items():
            if (place := index.of_column.get((index.of_table.get((name, table), -1), column))) is not None:
                columns[place] = cosine
        return tables, columns

    def _table(self, at: int, scores: Floats, parts: Mapping[str, Floats]) -> LinkedTable:
        name, table = self._index.tables[at]
        return LinkedTable(
            database=name,
            table=table.full_name,
            score=float(scores[at]),
            parts={part: float(values[at]) for part, values in parts.items() if values[at]},
        )

    def _chosen(self, words: Sequence[Word], named: Floats, strengths: Floats, order: Sequence[int]) -> list[int]:
        """Return the tables of the best one's database that are named, or have words that the others lack."""
        databases = self._index.database_of_table[order]
        own = np.asarray(order)[databases == databases[0]].tolist()
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
        cosines: Floats,
        most: int,
    ) -> tuple[LinkedColumn, ...]:
        """Return the columns of the chosen tables' database, best first."""
        index, weights = self._index, self._weights
        own = index.columns_of_database(index.database_of_table[chosen[0]])
        tables = index.table_of_column[own]
        needed = np.zeros(len(index.tables))
        needed[list(chosen)] = 1.0
        parts: dict[str, Floats] = {
            "words": words[own],
            "named": named[own],
            "table": weights.table * of_tables[tables],
            "chosen": weights.chosen * needed[tables],
            "joined": weights.joined * self._joined(chosen)[own],
            "entity": weights.entity * self._holding(entities)[own],
            "value": weights.value * self._valued(entities)[own],
            "meaning": weights.meaning * cosines[own],
        }
        scores = _sum(parts)
        return tuple(
            LinkedColumn(
                table=index.tables[tables[at]][1].full_name,
                column=index.columns[own.start + at][1].name,
                score=float(scores[at]),
                parts={part: float(values[at]) for part, values in parts.items() if values[at]},
            )
            for at in _best_first(scores, most)
        )

    def _holding(self, entities: Entities) -> Floats:
        """Return 1 for each column that may hold what the question names."""
        found = np.zeros(len(self._index.columns))
        if entities.quoted or entities.names:
            found = np.maximum(found, self._labels)
        if entities.dates:
            found = np.maximum(found, self._moments)
        return found

    def _valued(self, entities: Entities) -> Floats:
        """Return 1 for each column that is known to hold a value of the question."""
        found = np.zeros(len(self._index.columns))
        for value in entities.values:
            found[self._values[value]] = 1.0
        return found

    def _joined(self, chosen: Sequence[int]) -> Floats:
        """Return 1 for each column by which these tables are joined, by the likeliest paths."""
        index = self._index
        name = index.tables[chosen[0]][0]
        found = np.zeros(len(index.columns))
        for plan in self._graphs[name].plans([index.tables[at][1].full_name for at in chosen]):
            for join in plan.paths[0].joins:
                for table, columns in ((join.table, join.key.columns), (join.key.table, join.key.target)):
                    for column in columns:
                        found[index.of_column[index.of_table[name, table], column]] = 1.0
        return found


def _sum(parts: Mapping[str, Floats]) -> Floats:
    # One after the other: NumPy's sum would copy them into one array first.
    return reduce(np.add, parts.values())


def _best_first(scores: Floats, most: int | None = None) -> list[int]:
    """Return the positions of the best scores, or of all; of equal ones the first comes first."""
    near = np.arange(len(scores))
    if most is not None and most < len(scores):
        near = np.flatnonzero(scores >= np.partition(scores, -most)[-most])
    order: list[int] = near[np.argsort(-scores[near], kind="stable")][:most].tolist()
    return order


def _labels(index: NameIndex) -> Floats:
    labels = [label_of(table) for _, table in index.tables]
    return np.array([float(labels[table] is column) for table, column in index.columns])


def _flags(index: NameIndex, holds: Callable[[TableSchema, ColumnSchema], bool]) -> Floats:
    return np.array([float(holds(index.tables[table][1], column)) for table, column in index.columns])
