"""Schema linking: map a question to tables and columns.

A document is retrieved for its whole text. A question needs several tables, and names them by words that occur in some
names and not in others. So each word takes the best match among the names of a table and its columns (the late
interaction of ColBERT, Khattab and Zaharia 2020, with words in place of vectors); rare words count more; a table gains
if its database matches all words of the question.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np

from kosmos_rag.core.types import Passage
from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.catalog.model import ColumnSchema, TableSchema
from kosmos_rag.text2sql.catalog.roles import is_temporal, label_column
from kosmos_rag.text2sql.linking.entities import Entities
from kosmos_rag.text2sql.linking.name_index import Floats, NameIndex, Word, total_weight

_MAX_SELECTED = 4
_MATCH_STRENGTH = 0.6
"""Strength from which a word matches a name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Weights of the parts of a score."""

    words: float = 1.0
    """Share of the question's words, weighted by idf, that match the table or one of its columns."""
    in_columns: float = 0.8
    """Weight of a word that only a column matches, relative to one that the table's name matches."""
    named: float = 0.5
    """Share of the table's name in the question."""
    database: float = 1.0
    """Share of the question's words that any name of the database matches."""
    meaning: float = 1.0
    """Cosine of the table's document, and that of the best of its columns'."""
    database_meaning: float = 1.0
    """The best of the two together in the database."""
    table: float = 0.5
    """Weight of the table's score in the score of a column."""
    chosen: float = 0.5
    """For tables that the question needs, and for their columns."""
    joined: float = 1.0
    """For the join columns of those tables."""
    entity: float = 0.5
    """For columns that may hold names or times, if the question has any."""
    value: float = 1.0
    """For columns with a known value that the question contains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Cosines of documents to the question, by table and column."""

    tables: Mapping[tuple[str, str], float]
    """(database, full name of the table) → cosine."""
    columns: Mapping[tuple[str, str, str], float]

    @classmethod
    def of(cls, hits: Iterable[Passage]) -> Self:
        """Collect the cosines of search hits; lexical-only hits have none."""
        tables, columns = {}, {}
        for hit in hits:
            metadata = hit.metadata
            if hit.dense_score is None:
                continue
            if metadata.get("kind") == "schema_model":
                tables[metadata["database"], metadata["table"]] = hit.dense_score
            elif metadata.get("kind") == "schema_column":
                columns[metadata["database"], metadata["table"], metadata["column"]] = hit.dense_score
        return cls(tables=tables, columns=columns)


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedTable:
    """A table with its score and the parts of the score."""

    database: str
    table: str
    score: float
    parts: Mapping[str, float]
    """Contribution of each part, by its name in `Weights`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedColumn:
    """A column of the first database, with its score and parts."""

    table: str
    column: str
    score: float
    parts: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Linked:
    """Tables of all databases and columns of the first, best first."""

    tables: tuple[LinkedTable, ...]
    columns: tuple[LinkedColumn, ...]
    chosen: tuple[str, ...]
    """Selected tables of the first database: those that the question names, and those that its words need."""


class Linker:
    """Links questions to the names of an index. Thread-safe, immutable."""

    def __init__(self, index: NameIndex, weights: Weights | None = None) -> None:
        self._index = index
        self._weights = weights or Weights()
        self._graphs = {name: JoinGraph(schema) for name, schema in index.schemas.items()}
        self._labels = _labels(index)
        self._moments = _flags(index, lambda _, column: is_temporal(column) or column.name.lower().endswith("year"))
        self._values: dict[str, list[int]] = {}
        for at, (_, column) in enumerate(index.columns):
            for value in (*column.enum, *column.samples):
                self._values.setdefault(value.lower(), []).append(at)

    @property
    def known_values(self) -> Mapping[str, Sequence[int]]:
        """Known values of columns, in lower case."""
        return self._values

    def graph(self, database: str) -> JoinGraph:
        """Return the join graph of a database."""
        return self._graphs[database]

    def link(
        self, question: str, entities: Entities, evidence: Evidence, *, tables: int, columns: int | None = None
    ) -> Linked:
        """Rank tables, and the columns of the best table's database.

        Args:
            question: The question in natural language.
            entities: Its entities.
            evidence: Cosines of the retrieved documents.
            tables: Maximum number of tables.
            columns: Maximum number of columns; None is all.
        """
        index = self._index
        if not index.tables:
            return Linked(tables=(), columns=(), chosen=())
        words = index.words(question)
        word_shares = np.array([word.weight for word in words]) / total_weight(words)
        in_names, name_coverage = index.tables_named(words)
        in_columns, column_coverage = index.columns_named(words)
        in_tables = np.maximum(in_names, self._weights.in_columns * index.best_of_tables(in_columns))
        table_cosines, column_cosines = self._cosines(evidence)
        meaning = table_cosines + index.best_of_tables(column_cosines)
        database_strengths = index.best_of_databases(in_tables)
        parts = self._table_parts(word_shares @ in_tables, name_coverage, word_shares @ database_strengths, meaning)
        order = _best_first(_sum(parts))
        selected = self._select_tables(
            words, name_coverage, np.maximum(in_names, index.best_of_tables(in_columns)), order
        )
        needed = np.zeros(len(index.tables))
        needed[selected] = 1.0
        parts["chosen"] = self._weights.chosen * needed
        scores = _sum(parts)
        return Linked(
            tables=tuple(self._table(at, scores, parts) for at in _best_first(scores, tables)),
            columns=self._columns(
                word_shares @ in_columns,
                column_coverage,
                scores,
                selected,
                entities,
                column_cosines,
                columns or len(index.columns),
            ),
            chosen=tuple(index.tables[at][1].full_name for at in selected),
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
        # A document that was not retrieved is no closer than the last one retrieved.
        least = min([*evidence.tables.values(), *evidence.columns.values()], default=0.0)
        tables, columns = np.full(len(index.tables), least), np.full(len(index.columns), least)
        for key, cosine in evidence.tables.items():
            if (at := index.of_table.get(key)) is not None:
                tables[at] = cosine
        for (name, table, column), cosine in evidence.columns.items():
            if (position := index.of_column.get((index.of_table.get((name, table), -1), column))) is not None:
                columns[position] = cosine
        return tables, columns

    def _table(self, at: int, scores: Floats, parts: Mapping[str, Floats]) -> LinkedTable:
        name, table = self._index.tables[at]
        return LinkedTable(
            database=name,
            table=table.full_name,
            score=float(scores[at]),
            parts={part: float(values[at]) for part, values in parts.items() if values[at]},
        )

    def _select_tables(
        self, words: Sequence[Word], named: Floats, strengths: Floats, order: Sequence[int]
    ) -> list[int]:
        """Select tables of the best database by name or by missing words.

        A table is selected if the question names it, or if it matches a word that the selected ones do not.
        """
        databases = self._index.database_of_table[order]
        candidates = np.asarray(order)[databases == databases[0]].tolist()
        selected = [candidates[0], *(at for at in candidates[1:] if named[at] >= 2 / 3)][:_MAX_SELECTED]
        for row in sorted(range(len(words)), key=lambda row: -words[row].weight):
            if len(selected) == _MAX_SELECTED:
                break
            if strengths[row, selected].max() < _MATCH_STRENGTH:
                selected += [at for at in candidates if strengths[row, at] >= _MATCH_STRENGTH][:1]
        return selected

    def _columns(
        self,
        words: Floats,
        named: Floats,
        table_scores: Floats,
        selected: Sequence[int],
        entities: Entities,
        cosines: Floats,
        limit: int,
    ) -> tuple[LinkedColumn, ...]:
        """Rank the columns of the selected tables' database."""
        index, weights = self._index, self._weights
        column_range = index.columns_of_database(index.database_of_table[selected[0]])
        tables = index.table_of_column[column_range]
        needed = np.zeros(len(index.tables))
        needed[list(selected)] = 1.0
        parts: dict[str, Floats] = {
            "words": words[column_range],
            "named": named[column_range],
            "table": weights.table * table_scores[tables],
            "chosen": weights.chosen * needed[tables],
            "joined": weights.joined * self._join_columns(selected)[column_range],
            "entity": weights.entity * self._entity_matches(entities)[column_range],
            "value": weights.value * self._value_matches(entities)[column_range],
            "meaning": weights.meaning * cosines[column_range],
        }
        scores = _sum(parts)
        return tuple(
            LinkedColumn(
                table=index.tables[tables[at]][1].full_name,
                column=index.columns[column_range.start + at][1].name,
                score=float(scores[at]),
                parts={part: float(values[at]) for part, values in parts.items() if values[at]},
            )
            for at in _best_first(scores, limit)
        )

    def _entity_matches(self, entities: Entities) -> Floats:
        """Return 1 for each column that may hold the question's entities."""
        matches = np.zeros(len(self._index.columns))
        if entities.quoted or entities.names:
            matches = np.maximum(matches, self._labels)
        if entities.dates:
            matches = np.maximum(matches, self._moments)
        return matches

    def _value_matches(self, entities: Entities) -> Floats:
        """Return 1 for each column that holds a value of the question."""
        matches = np.zeros(len(self._index.columns))
        for value in entities.values:
            matches[self._values[value]] = 1.0
        return matches

    def _join_columns(self, selected: Sequence[int]) -> Floats:
        """Return 1 for each column in the first join paths of tables."""
        index = self._index
        name = index.tables[selected[0]][0]
        matches = np.zeros(len(index.columns))
        for plan in self._graphs[name].plans([index.tables[at][1].full_name for at in selected]):
            for join in plan.paths[0].joins:
                for table, columns in ((join.table, join.key.columns), (join.key.table, join.key.target)):
                    for column in columns:
                        matches[index.of_column[index.of_table[name, table], column]] = 1.0
        return matches


def _sum(parts: Mapping[str, Floats]) -> Floats:
    # One after the other: NumPy's sum would copy them into one array first.
    return reduce(np.add, parts.values())


def _best_first(scores: Floats, limit: int | None = None) -> list[int]:
    """Return positions by descending score; ties by position."""
    candidates = np.arange(len(scores))
    if limit is not None and limit < len(scores):
        candidates = np.flatnonzero(scores >= np.partition(scores, -limit)[-limit])
    order: list[int] = candidates[np.argsort(-scores[candidates], kind="stable")][:limit].tolist()
    return order


def _labels(index: NameIndex) -> Floats:
    labels = [label_column(table) for _, table in index.tables]
    return np.array([float(labels[table] is column) for table, column in index.columns])


def _flags(index: NameIndex, predicate: Callable[[TableSchema, ColumnSchema], bool]) -> Floats:
    return np.array([float(predicate(index.tables[table][1], column)) for table, column in index.columns])
