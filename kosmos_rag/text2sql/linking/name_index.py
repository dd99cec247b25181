"""All names of some schemas, to be looked up by the words of a question."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.text.bm25 import inverse_document_frequency
from kosmos_rag.retrieval.expansion.synonyms import Synonyms
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.linking.words import is_content_word, question_words, stem, stem_name

Floats = NDArray[np.float64]

_PREFIX = 4
"""Letters that two words share at least where one is taken for a form or a part of the other."""
_ALIKE = 86
"""Least likeness (rapidfuzz `ratio`) of a word that is written wrong; only where no name has the word itself."""
_SYNONYM = 0.6
_IN_COMMENT = 0.6
_IN_COMPOUND = 0.6
_SAME_BEGINNING = 0.7


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """A word of a question, with the words of names that it may mean."""

    text: str
    weight: float
    """How rare what it means is among the tables; 0 where no name has it."""
    matches: Mapping[int, float]
    """Number of a word of the vocabulary → strength, 0 to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Vocabulary:
    """The distinct words of names."""

    numbers: dict[str, int] = field(default_factory=dict)
    by_prefix: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    by_ending: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def number(self, word: str) -> int:
        if word not in self.numbers:
            self.numbers[word] = len(self.numbers)
            if len(word) >= _PREFIX:
                self.by_prefix[word[:_PREFIX]].append(word)
            for start in range(3, len(word) - _PREFIX + 1):
                self.by_ending[word[start:]].append(word)
        return self.numbers[word]

    def like(self, word: str) -> dict[int, float]:
        """Return the words that a stem may mean, itself first: 1 for the same."""
        found = {self.numbers[word]: 1.0} if word in self.numbers else {}
        if len(word) >= _PREFIX:
            for other in self.by_prefix.get(word[:_PREFIX], ()):
                if other != word and (strength := _related(word, other)):
                    found[self.numbers[other]] = strength
            for other in self.by_ending.get(word, ()):
                found.setdefault(self.numbers[other], _IN_COMPOUND)
        return found or self._misspelt(word)

    def _misspelt(self, word: str) -> dict[int, float]:
        if len(word) <= _PREFIX:
            return {}
        from rapidfuzz import fuzz, process

        near = process.extractOne(word, self.numbers.keys(), scorer=fuzz.ratio, score_cutoff=_ALIKE)
        return {self.numbers[near[0]]: near[1] / 100} if near else {}


def _related(word: str, other: str) -> float:
    """Return how far one word may be a form or a part of the other; both begin alike."""
    shorter, longer = sorted((word, other), key=len)
    share = len(shorter) / len(longer)
    if longer.startswith(shorter):
        return 0.5 + 0.5 * share if share >= _IN_COMPOUND else 0.5
    same = next(at for at, (one, two) in enumerate(zip(word, other, strict=False)) if one != two)
    return _SAME_BEGINNING if same > _PREFIX and same / len(longer) >= _IN_COMPOUND else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """Names in a row, each with the numbers of its words: flat, so that NumPy can add them up."""

    words: NDArray[np.int64]
    starts: NDArray[np.int64]
    holders: Mapping[int, NDArray[np.int64]]
    """Number of a word → the names that have it."""

    @classmethod
    def of(cls, names: Sequence[Sequence[int]]) -> "_Group":
        holders: dict[int, list[int]] = defaultdict(list)
        for position, words in enumerate(names):
            for word in words:
                holders[word].append(position)
        lengths = np.array([len(words) for words in names], dtype=np.int64)
        return cls(
            words=np.array([word for words in names for word in words], dtype=np.int64),
            starts=np.cumsum(lengths) - lengths,
            holders={word: np.array(found, dtype=np.int64) for word, found in holders.items()},
        )

    def named(self, best: Floats, weights: Floats) -> Floats:
        """Return which share of each name the question says, its words weighed."""
        if not len(self.words):
            return np.zeros(0)
        weighed = weights[self.words]
        said: Floats = np.add.reduceat(best[self.words] * weighed, self.starts)
        whole: Floats = np.add.reduceat(weighed, self.starts)
        return said / np.maximum(whole, 1e-9)

    def matched(self, words: Sequence[Word], size: int) -> Floats:
        """Return the strength of each word in each name."""
        found = np.zeros((len(words), size))
        for row, word in enumerate(words):
            for number, strength in word.matches.items():
                if (holders := self.holders.get(number)) is not None:
                    found[row, holders] = np.maximum(found[row, holders], strength)
        return found


class NameIndex:
    """The tables and columns of schemas, numbered, found by words. Thread-safe: it never changes."""

    def __init__(self, schemas: Iterable[DatabaseSchema], synonyms: Synonyms) -> None:
        self.schemas = {schema.name: schema for schema in schemas}
        self.tables: list[tuple[str, TableSchema]] = []
        self.columns: list[tuple[int, ColumnSchema]] = []
        self._synonyms = synonyms
        self._vocabulary = _Vocabulary()
        first_columns, first_tables = [], []
        for name, schema in self.schemas.items():
            if schema.tables:
                first_tables.append(len(self.tables))
            for table in schema.tables:
                first_columns.append(len(self.columns))
                self.columns.extend((len(self.tables), column) for column in table.columns)
                self.tables.append((name, table))
        self.of_table = {(name, table.full_name): at for at, (name, table) in enumerate(self.tables)}
        self.of_column = {(table, column.name): at for at, (table, column) in enumerate(self.columns)}
        self.table_of_column = np.array([table for table, _ in self.columns], dtype=np.int64)
        self.first_tables = np.array(first_tables, dtype=np.int64)
        lengths = np.diff([*first_tables, len(self.tables)])
        self.database_of_table = np.repeat(np.arange(len(first_tables)), lengths)
        self._with_columns = np.flatnonzero([bool(table.columns) for _, table in self.tables])
        self._first_columns = np.array(first_columns, dtype=np.int64)[self._with_columns]
        self._tables = _Group.of([self._numbers(table.name, table.aliases) for _, table in self.tables])
        self._columns = _Group.of([self._numbers(column.name, column.aliases) for _, column in self.columns])
        self._comments = _Group.of([self._numbers_of_comment(column.comment or "") for _, column in self.columns])
        self._weights = self._rarity()

    def _numbers(self, name: str, aliases: Sequence[str]) -> list[int]:
        stems = dict.fromkeys(word for given in (name, *aliases) for word in stem_name(given))
        # A name without a word, an emoji, still has a place in the row.
        return [self._vocabulary.number(word) for word in stems or (name,)]

    def _numbers_of_comment(self, comment: str) -> list[int]:
        stems = dict.fromkeys(stem(word) for word in question_words(comment) if is_content_word(word))
        return [self._vocabulary.number(word) for word in stems]

    def _rarity(self) -> Floats:
        """Return the inverse frequency of each word of the vocabulary among the tables, their columns included."""
        holders: dict[int, set[int]] = defaultdict(set)
        for word, tables in self._tables.holders.items():
            holders[word].update(tables.tolist())
        for group in (self._columns, self._comments):
            for word, columns in group.holders.items():
                holders[word].update(self.table_of_column[columns].tolist())
        size = len(self.tables)
        return np.array([inverse_document_frequency(size, len(holders[word])) for word in range(len(holders))])

    def words(self, question: str) -> list[Word]:
        """Return the words of a question that can name something, compounds and synonyms included."""
        said = question_words(question)
        plain = [stem(word) for word in said if is_content_word(word)]
        joined = (stem(one + two) for one, two in pairwise(said))
        compounds = [word for word in joined if word in self._vocabulary.numbers and len(word) > _PREFIX]
        found = [self._word(text, {}) for text in dict.fromkeys((*plain, *compounds))]
        for word in dict.fromkeys(said):
            sought = self._meant(word)
            if sought:
                found = [entry for entry in found if entry.text != stem(word)]
                found.append(self._word(stem(word) if is_content_word(word) else "", sought))
        phrases = {stem(word) for term in self._synonyms.expand(question) for word in term.lower().split()}
        known = {number for entry in found for number in entry.matches}
        for text in sorted(phrases & self._vocabulary.numbers.keys()):
            if self._vocabulary.numbers[text] not in known:
                found.append(self._word("", {self._vocabulary.numbers[text]: _SYNONYM}))
        return [word for word in found if word.weight > 0]

    def _meant(self, word: str) -> dict[int, float]:
        """Return the words of names that a synonym of one word stands for."""
        stems = (stem(part) for term in self._synonyms.expand(word) for part in term.lower().split())
        return {self._vocabulary.numbers[text]: _SYNONYM for text in stems if text in self._vocabulary.numbers}

    def _word(self, text: str, sought: Mapping[int, float]) -> Word:
        matches = {**sought, **(self._vocabulary.like(text) if text else {})}
        if not matches:
            return Word(text=text, weight=0.0, matches=matches)
        # What it most likely means decides how much it tells.
        strongest = max(matches, key=lambda number: (matches[number], -number))
        return Word(text=text, weight=float(self._weights[strongest]) * matches[strongest], matches=matches)

    def tables_named(self, words: Sequence[Word]) -> tuple[Floats, Floats]:
        """Return the strength of each word in each table's name, and the share of the name that is said."""
        best = self._best(words)
        return self._tables.matched(words, len(self.tables)), self._tables.named(best, self._weights)

    def columns_named(self, words: Sequence[Word]) -> tuple[Floats, Floats]:
        """Return the same for the names of columns; a word that only a comment has counts for less."""
        in_names = self._columns.matched(words, len(self.columns))
        in_comments = _IN_COMMENT * self._comments.matched(words, len(self.columns))
        return np.maximum(in_names, in_comments), self._columns.named(self._best(words), self._weights)

    def _best(self, words: Sequence[Word]) -> Floats:
        best = np.zeros(len(self._weights))
        for word in words:
            for number, strength in word.matches.items():
                best[number] = max(best[number], strength)
        return best

    def columns_of_database(self, number: int) -> slice:
        """Return where the columns of a database stand: its tables follow each other, and so do theirs."""
        tables = np.searchsorted(self.database_of_table, [number, number + 1])
        start, stop = np.searchsorted(self.table_of_column, tables).tolist()
        return slice(start, stop)

    def best_of_tables(self, of_columns: Floats) -> Floats:
        """Return the best value among the columns of each table, along the last axis."""
        best = np.zeros((*of_columns.shape[:-1], len(self.tables)))
        if len(self._first_columns):
            best[..., self._with_columns] = np.maximum.reduceat(of_columns, self._first_columns, axis=-1)
        return best

    def best_of_databases(self, of_tables: Floats) -> Floats:
        """Return for each table the best value among all tables of its database, along the last axis."""
        if not self.tables:
            return of_tables
        best: Floats = np.maximum.reduceat(of_tables, self.first_tables, axis=-1)[..., self.database_of_table]
        return best


def total_weight(words: Sequence[Word]) -> float:
    """Return the sum of the words' weights, never 0."""
    return math.fsum(word.weight for word in words) or 1.0
