"""Schema linking: map a question to tables and columns.

A document is retrieved for its whole text. A question needs several tables, and names them by words that occur in some
names and not in others. So each word takes the best match among the names of a table and its columns (the late
interaction of ColBERT, Khattab and Zaharia 2020, with words instead of vectors); rare words count more. The database is
chosen by evidence of its own, and its tables are ranked within it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Self

import numpy as np

from kosmos_rag.core.types import Passage
from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.linking.columns import ColumnRanker, LinkedColumn, TableRanking, add_parts, best_first
from kosmos_rag.text2sql.linking.known_values import ValueMatch
from kosmos_rag.text2sql.linking.name_index import MATCH_STRENGTH, Floats, NameIndex, Word, total_weight
from kosmos_rag.text2sql.linking.weights import Weights
from kosmos_rag.text2sql.linking.words import stem, stem_name
from kosmos_rag.text2sql.query_examples import KIND
from kosmos_rag.text2sql.records import Entities, LinkedTable, split_column

_MAX_SELECTED = 4
_NAMED = 2 / 3
"""Share of a table's name from which a question names it."""
_COUNTED = re.compile(r"\b(?:how many|number of|count of)\s+(\w+(?:\s+\w+)?)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Similarities:
    """Cosines of documents to the question, by table and column."""

    tables: Mapping[tuple[str, str], float]
    """(database, full name of the table) → cosine."""
    columns: Mapping[tuple[str, str, str], float]

    @classmethod
    def from_hits(cls, hits: Iterable[Passage]) -> Self:
        """Collect the cosines of search hits; lexical-only hits have none.

        An example is evidence for the tables and columns of its query.
        """
        tables: dict[tuple[str, str], float] = {}
        columns: dict[tuple[str, str, str], float] = {}
        examples: list[Passage] = []
        for hit in hits:
            metadata = hit.metadata
            if hit.dense_score is None:
                continue
            if metadata.get("kind") == "schema_model":
                tables[metadata["database"], metadata["table"]] = hit.dense_score
            elif metadata.get("kind") == "schema_column":
                columns[metadata["database"], metadata["table"], metadata["column"]] = hit.dense_score
            elif metadata.get("kind") == KIND:
                examples.append(hit)
        for hit in examples:
            database, cosine = hit.metadata["database"], hit.dense_score or 0.0
            for table in hit.metadata["tables"]:
                tables[database, table] = max(cosine, tables.get((database, table), 0.0))
            for name in hit.metadata["columns"]:
                table, column = split_column(name, hit.metadata["tables"])
                columns[database, table, column] = max(cosine, columns.get((database, table, column), 0.0))
        return cls(tables=tables, columns=columns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Linked:
    """Tables of all databases and columns of the first, best first."""

    tables: tuple[LinkedTable, ...]
    columns: tuple[LinkedColumn, ...]
    supported: int
    """Number of columns that the question's words, values or entities support; the others only fit its tables."""
    chosen: tuple[str, ...]
    """Selected tables of the first database: those that the question names, and those that its words need."""


class Linker:
    """Links questions to the names of an index. Thread-safe, immutable."""

    def __init__(self, index: NameIndex, weights: Weights | None = None) -> None:
        self._index = index
        self._weights = weights or Weights()
        self._graphs = {name: JoinGraph(schema) for name, schema in index.schemas.items()}
        self._columns = ColumnRanker(index, self._weights)

    def find_values(self, question: str) -> tuple[ValueMatch, ...]:
        """Return the known values that a question says; see `KnownValues.find`."""
        return self._columns.known_values.find(question, is_name=self._index.is_name)

    def row_names(self, question: str) -> list[str]:
        """Return likely names of rows; see `NameIndex.row_names`."""
        return self._index.row_names(question)

    def graph(self, database: str) -> JoinGraph:
        """Return the join graph of a database."""
        return self._graphs[database]

    def link(
        self, question: str, entities: Entities, evidence: Similarities, *, tables: int, columns: int | None = None
    ) -> Linked:
        """Rank tables, and the columns of the best table's database.

        Args:
            evidence: Cosines of the retrieved documents.
            tables: Maximum number of tables.
            columns: Maximum number of columns; None is all.
        """
        index = self._index
        if not index.tables:
            return Linked(tables=(), columns=(), supported=0, chosen=())
        words = index.words(question)
        word_shares = np.array([word.weight for word in words]) / total_weight(words)
        in_names, name_coverage = index.match_table_names(words)
        in_columns, column_coverage = index.match_column_names(words)
        in_best_columns = index.best_of_tables(in_columns)
        in_tables = np.maximum(in_names, self._weights.in_columns * in_best_columns)
        table_cosines, column_cosines = self._cosines(evidence)
        parts = self._table_parts(
            words=word_shares @ in_tables,
            name_coverage=name_coverage,
            database=index.match_databases(np.maximum(in_names, in_best_columns)),
            meaning=table_cosines + index.best_of_tables(column_cosines),
        )
        order = best_first(add_parts(parts))
        selected = self._select_tables(words, name_coverage, np.maximum(in_names, in_best_columns), order)
        needed = np.zeros(len(index.tables))
        needed[selected] = 1.0
        parts["chosen"] = self._weights.chosen * needed
        scores = add_parts(parts)
        # A word of a row's name asks for no column, even where a comment has it as an example.
        row_names = {stem(part) for name in entities.names if name.islower() for part in name.split()}
        counted_stems = {stem(word) for match in _COUNTED.finditer(question.lower()) for word in match[1].split()}
        ranking = TableRanking(
            word_shares=word_shares * np.array([word.text not in row_names for word in words]),
            in_names=in_names,
            in_columns=in_columns,
            coverage=column_coverage,
            scores=scores,
            selected=selected,
            name_matches=[
                at for at in selected if name_coverage[at] >= _NAMED and not self._counts_rows(at, counted_stems)
            ],
        )
        ranked_columns, supported = self._columns.rank(ranking, entities, column_cosines, columns or len(index.columns))
        return Linked(
            tables=tuple(self._table(at, scores, parts) for at in best_first(scores, tables)),
            columns=ranked_columns,
            supported=supported,
            chosen=tuple(index.tables[at][1].full_name for at in selected),
        )

    def _counts_rows(self, at: int, counted_stems: Set[str]) -> bool:
        """Return whether a question counts the rows of a table."""
        return not counted_stems.isdisjoint(stem_name(self._index.tables[at][1].name)[-1:])

    def _table_parts(
        self, *, words: Floats, name_coverage: Floats, database: Floats, meaning: Floats
    ) -> dict[str, Floats]:
        """Return the parts of the score of each table.

        The best table of a database has the score of the database; its other tables have less.
        """
        index, weights = self._index, self._weights
        parts = {
            "words": weights.words * words,
            "named": weights.named * name_coverage,
            "meaning": weights.meaning * meaning,
        }
        evidence = add_parts(parts)
        return {
            **parts,
            "best": -index.best_of_databases(evidence),
            "database": weights.database * database,
            "size": -weights.size * index.log_sizes,
            "database_meaning": weights.database_meaning * index.best_of_databases(meaning),
        }

    def _cosines(self, evidence: Similarities) -> tuple[Floats, Floats]:
        """Return the cosine of each table's document and of each column's."""
        index = self._index
        # A document that was not retrieved is no closer than the last one retrieved.
        least = min([*evidence.tables.values(), *evidence.columns.values()], default=0.0)
        tables, columns = np.full(len(index.tables), least), np.full(len(index.columns), least)
        for key, cosine in evidence.tables.items():
            if (at := index.table_numbers.get(key)) is not None:
                _raise_cosines(cosine, tables, at, index.equal_tables)
        for (name, table, column), cosine in evidence.columns.items():
            if (at := index.column_numbers.get((index.table_numbers.get((name, table), -1), column))) is not None:
                _raise_cosines(cosine, columns, at, index.equal_columns)
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
        self, words: Sequence[Word], name_coverage: Floats, strengths: Floats, order: Sequence[int]
    ) -> list[int]:
        """Select tables of the best database by name or by missing words.

        A table is selected if the question names it, or if it matches a word that the selected ones do not.
        """
        databases = self._index.database_of_table[order]
        candidates = np.asarray(order)[databases == databases[0]]
        others = candidates[1:]
        selected = [int(candidates[0]), *others[name_coverage[others] >= _NAMED].tolist()][:_MAX_SELECTED]
        for row in sorted(range(len(words)), key=lambda row: -words[row].weight):
            if len(selected) == _MAX_SELECTED:
                break
            if strengths[row, selected].max() < MATCH_STRENGTH:
                selected += candidates[strengths[row, candidates] >= MATCH_STRENGTH][:1].tolist()
        return selected


def _raise_cosines(cosine: float, cosines: Floats, at: int, equals: Mapping[int, Sequence[int]]) -> None:
    """Raise an item and its equals to at least a cosine.

    Which of equal documents a search returns is chance.
    """
    for position in (at, *equals.get(at, ())):
        cosines[position] = max(cosines[position], cosine)
