"""Rank the columns of a question until the evidence ends.

A join key is not what a question asks for: it shares words with the table it refers to. So words that the name of a
column's own table or of the referenced table explains count little for the column, and nothing for a key. A word that
an earlier column has counts no more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.text2sql.catalog.model import ColumnSchema, TableSchema
from kosmos_rag.text2sql.catalog.roles import is_temporal, label_column
from kosmos_rag.text2sql.linking.known_values import KnownValues, known_texts
from kosmos_rag.text2sql.linking.name_index import Floats, Integers, NameIndex
from kosmos_rag.text2sql.linking.weights import Weights
from kosmos_rag.text2sql.records import Entities

_EXPLAINED = 0.3
"""Weight of a word in a column's name that the name of its table has too."""
_CUT = 0.35
"""Share of the best column's own evidence from which a column is returned."""
_BLOCK = 64
"""Scores of which only the best one is compared first."""
_OWN_PARTS = ("words", "named", "entity", "value", "label")
"""Parts that speak for the column itself, not for its table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedColumn:
    """A column of the first database, with its score and parts."""

    table: str
    column: str
    score: float
    parts: Mapping[str, float]

    @property
    def evidence(self) -> float:
        """What speaks for the column itself, without its table."""
        return sum(self.parts.get(name, 0.0) for name in _OWN_PARTS)

    @property
    def new_evidence(self) -> float:
        """The same without the words that an earlier column has."""
        return self.evidence + self.parts.get("repeated", 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRanking:
    """What is known of a question's tables when its columns are ranked."""

    word_shares: Floats
    """Weights of the question's words, 0 for those of the names of rows. Shape (words,)."""
    in_names: Floats
    """Strength of each word in the name of each table. Shape (words, tables)."""
    in_columns: Floats
    """Strength of each word in the name of each column. Shape (words, columns)."""
    coverage: Floats
    """Share of each column's name that the question says. Shape (columns,)."""
    scores: Floats
    """Scores of the tables. Shape (tables,)."""
    selected: Sequence[int]
    """Numbers of the needed tables, all of one database."""
    name_matches: Sequence[int]
    """Those of them that the question names and does not count."""


class ColumnRanker:
    """Ranks the columns of an index. Thread-safe, immutable."""

    def __init__(self, index: NameIndex, weights: Weights) -> None:
        self._index = index
        self._weights = weights
        self._labels = _labels(index)
        self._moments = _flags(index, lambda _, column: is_temporal(column) or column.name.lower().endswith("year"))
        self._keys = _flags(index, lambda table, column: column.name in table.key_columns)
        self._referenced = _find_referenced_tables(index)
        self._values: dict[str, list[int]] = {}
        for at, (_, column) in enumerate(index.columns):
            for text in known_texts(column):
                self._values.setdefault(text, []).append(at)
        self.known_values = KnownValues(self._values)

    def rank(
        self, tables: TableRanking, entities: Entities, cosines: Floats, limit: int
    ) -> tuple[tuple[LinkedColumn, ...], int]:
        """Rank the columns of the needed tables' database, best first.

        Returns the columns, and how many of them the evidence supports.

        Args:
            cosines: Cosine of each column's document.
        """
        index, weights = self._index, self._weights
        entity, value = self._entity_matches(entities), self._value_matches(entities)
        columns = self._candidates(tables, entity + value, cosines, limit)
        table_of = index.table_of_column[columns]
        needed = np.zeros(len(index.tables))
        needed[list(tables.selected)] = 1.0
        strengths = self._discount_table_names(tables, columns)
        word_evidence = tables.word_shares @ strengths
        matched = tables.word_shares @ tables.in_columns[:, columns]
        unexplained = np.divide(word_evidence, matched, out=np.ones_like(word_evidence), where=matched > 0)
        parts: dict[str, Floats] = {
            "words": word_evidence,
            "named": tables.coverage[columns] * unexplained,
            "table": weights.table * tables.scores[table_of],
            "chosen": weights.chosen * needed[table_of],
            "entity": weights.entity * entity[columns],
            "value": weights.value * value[columns],
            "column_meaning": weights.column_meaning * cosines[columns],
        }
        evidence = add_parts({name: parts[name] for name in ("words", "entity", "value")})
        parts["label"] = weights.label * self._label_matches(tables, evidence, columns)
        is_evident = (_own_evidence(parts) > 0) | (cosines[columns] > cosines.min(initial=np.inf))
        order, parts["repeated"] = _order(add_parts(parts), is_evident, strengths, tables.word_shares, limit)
        scores = add_parts(parts)
        ranking = tuple(
            LinkedColumn(
                table=index.tables[table_of[at]][1].full_name,
                column=index.columns[columns[at]][1].name,
                score=float(scores[at]),
                parts={part: float(values[at]) for part, values in parts.items() if values[at]},
            )
            for at in order
        )
        return ranking, _count_supported(parts, order)

    def _candidates(self, tables: TableRanking, evident: Floats, cosines: Floats, limit: int) -> Integers:
        """Return the columns that can be among the best.

        Of many columns few have a word of the question. A column without evidence has the score of its table: only
        those of the best tables can be among the best columns.
        """
        index = self._index
        database = index.database_of_table[tables.selected[0]]
        column_range = index.columns_of_database(database)
        with_evidence = tables.in_columns[:, column_range].any(axis=0) | (evident[column_range] > 0)
        with_evidence |= cosines[column_range] > cosines.min(initial=np.inf)
        numbers = index.tables_with_columns[index.database_of_table[index.tables_with_columns] == database]
        best = numbers[best_first(tables.scores[numbers], limit)]
        for table in (*tables.selected, *best.tolist()):
            table_columns = index.columns_of_table(table)
            with_evidence[table_columns.start - column_range.start : table_columns.stop - column_range.start] = True
        candidates: Integers = column_range.start + np.flatnonzero(with_evidence)
        return candidates

    def _discount_table_names(self, tables: TableRanking, columns: Integers) -> Floats:
        """Return the strength of words in columns beyond their tables' names.

        Shape (words, columns).
        """
        in_columns = tables.in_columns[:, columns]
        keys = self._keys[columns]
        in_table_names = tables.in_names[:, self._index.table_of_column[columns]]
        explained = in_table_names * np.where(keys, 1.0, 1.0 - _EXPLAINED)
        for position in np.flatnonzero(keys * in_columns.any(axis=0)).tolist():
            for table in self._referenced.get(int(columns[position]), ()):
                explained[:, position] = np.maximum(explained[:, position], tables.in_names[:, table])
        strengths: Floats = in_columns * (1.0 - explained)
        return strengths

    def _label_matches(self, tables: TableRanking, evidence: Floats, columns: Integers) -> Floats:
        """Return 1 for labels of named tables without an asked column."""
        table_of = self._index.table_of_column[columns]
        matches = np.zeros(len(columns))
        for table in tables.name_matches:
            in_table = table_of == table
            if not evidence[in_table].any():
                matches[in_table] = self._labels[columns][in_table]
        return matches

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


def _order(
    scores: Floats, is_evident: NDArray[np.bool_], strengths: Floats, word_shares: Floats, limit: int
) -> tuple[list[int], Floats]:
    """Order columns by score, where each word counts for the first column that has it.

    Where four tables have `state`, one makes room for what else the question says, not for columns that nothing speaks
    for: these stay behind all that had a better score. Returns the positions, and what each column lost, 0 or less.

    Args:
        is_evident: Whether a word, a value or its document speaks for a column. Shape (columns,).
        strengths: Strength of each word in each column. Shape (words, columns).
    """
    evident, others = np.flatnonzero(is_evident), np.flatnonzero(~is_evident)
    order, losses = _order_evident(scores[evident], strengths[:, evident], word_shares, limit)
    final = scores.copy()
    final[evident] += losses
    by_score = evident[best_first(scores[evident])]
    least = np.minimum.accumulate(np.concatenate(([np.inf], final[by_score])))
    final[others] = np.minimum(scores[others], least[np.searchsorted(-scores[by_score], -scores[others], side="right")])
    merged = np.concatenate((evident[order], others))
    return merged[best_first(final[merged], limit)].tolist(), final - scores


def _order_evident(scores: Floats, strengths: Floats, word_shares: Floats, limit: int) -> tuple[list[int], Floats]:
    order: list[int] = []
    coverage, repeated = np.zeros((len(strengths), 1)), np.zeros(len(scores))
    remaining = best_first(scores, limit)
    while remaining and len(order) < limit:
        order.append(remaining.pop(0))
        with_this = np.maximum(coverage, strengths[:, order[-1:]])
        if (with_this > coverage).any():
            coverage = with_this
            losses = repeated[order]
            repeated = -(word_shares @ np.minimum(strengths, coverage))
            repeated[order] = losses
            scores_left = scores + repeated
            scores_left[order] = -np.inf
            remaining = best_first(scores_left, limit)[: len(scores) - len(order)]
    return order, repeated


def _own_evidence(parts: Mapping[str, Floats]) -> Floats:
    return add_parts({name: parts[name] for name in _OWN_PARTS})


def _count_supported(parts: Mapping[str, Floats], order: Sequence[int]) -> int:
    """Return the number of columns with evidence, at least one."""
    evidence = _own_evidence(parts)[order]
    if not len(evidence):
        return 0
    return max(int(np.flatnonzero(evidence >= _CUT * evidence.max()).max(initial=0)) + 1, 1)


def add_parts(parts: Mapping[str, Floats]) -> Floats:
    """Return the sum of the parts of a score."""
    # One after the other: NumPy's sum would copy them into one array first.
    return reduce(np.add, parts.values())


def best_first(scores: Floats, limit: int | None = None) -> list[int]:
    """Return positions by descending score; ties by position."""
    candidates = np.arange(len(scores))
    blocks = np.arange(0, len(scores), _BLOCK)
    if limit is not None and limit < len(blocks):
        # So many blocks have a score of at least this: no lower one is among the best. A partition of all scores takes
        # ten times as long where most are equal.
        least = np.partition(np.maximum.reduceat(scores, blocks), -limit)[-limit]
        candidates = np.flatnonzero(scores >= least)
    order: list[int] = candidates[np.argsort(-scores[candidates], kind="stable")][:limit].tolist()
    return order


def _labels(index: NameIndex) -> Floats:
    labels = [label_column(table) for _, table in index.tables]
    return np.array([float(labels[table] is column) for table, column in index.columns])


def _flags(index: NameIndex, predicate: Callable[[TableSchema, ColumnSchema], bool]) -> Floats:
    return np.array([float(predicate(index.tables[table][1], column)) for table, column in index.columns])


def _find_referenced_tables(index: NameIndex) -> dict[int, list[int]]:
    """Return the numbers of the tables that each key column refers to."""
    referenced: dict[int, list[int]] = {}
    for number, (database, table) in enumerate(index.tables):
        for key in table.foreign_keys:
            target = index.table_numbers.get((database, key.table), number)
            for column in key.columns if target != number else ():
                referenced.setdefault(index.column_numbers[number, column], []).append(target)
    return referenced
