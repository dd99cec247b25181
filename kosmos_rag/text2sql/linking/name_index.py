"""Index of schema names, searched by the words of a question."""

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.text.bm25 import inverse_document_frequency
from kosmos_rag.core.text.dictionary import is_word
from kosmos_rag.engine.stop_words import find_stop_words
from kosmos_rag.engine.synonyms import Synonyms
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.linking.words import is_content_word, question_words, stem, stem_name, unify_spelling

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_PREFIX = 4
"""Minimum length of the common prefix of two related words."""
_MIN_RATIO = 86
"""Minimum rapidfuzz `ratio` of a misspelt word; used only if no name has the word itself."""
MATCH_STRENGTH = 0.6
"""Strength from which a word matches a name."""
_SYNONYM = 0.6
_IN_COMMENT = 0.6
_IN_COMPOUND = 0.6
_SHARED_PREFIX = 0.7
_COUNT = re.compile(r"^\W*count\b(?: the)?(?: (?:total )?number of)?|\bthe (?:total )?count of\b", re.IGNORECASE)
"""An instruction to count, which is no name: `count` would match `country`."""
_BEFORE_ROW_NAME = frozenset({"for", "named", "called"})
_ROW_NAME_WORDS = 2
"""Minimum words of a row's name without quotes or capitals; a single unknown word is often a verb."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """A word of a question, with the name words it may match."""

    text: str
    weight: float
    """Inverse document frequency of its best match over tables; 0 without a match."""
    matches: Mapping[int, float]
    """Number of a word of the vocabulary → strength, 0 to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Vocabulary:
    """The distinct words of names."""

    numbers: dict[str, int] = field(default_factory=dict)
    by_prefix: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    by_ending: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    by_spelling: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """British and American."""
    by_length: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """A misspelt word has about the length of the word that is meant."""

    def number(self, word: str) -> int:
        if word not in self.numbers:
            self.numbers[word] = len(self.numbers)
            self.by_length[len(word)].append(word)
            if len(word) >= _PREFIX:
                self.by_prefix[word[:_PREFIX]].append(word)
                self.by_spelling[unify_spelling(word)].append(word)
            for start in range(3, len(word) - _PREFIX + 1):
                self.by_ending[word[start:]].append(word)
        return self.numbers[word]

    def like(self, word: str, *, misspelt: bool = True) -> dict[int, float]:
        """Return the words that a stem may match, with strengths."""
        matches = {self.numbers[word]: 1.0} if word in self.numbers else {}
        if len(word) >= _PREFIX:
            for other in self.by_prefix.get(word[:_PREFIX], ()):
                if other != word and (strength := _relatedness(word, other)):
                    matches[self.numbers[other]] = strength
            for other in self.by_spelling.get(unify_spelling(word), ()):
                matches[self.numbers[other]] = 1.0
            for other in self.by_ending.get(word, ()):
                matches.setdefault(self.numbers[other], _IN_COMPOUND)
        return matches or (self._misspelt(word) if misspelt else {})

    def _misspelt(self, word: str) -> dict[int, float]:
        if len(word) <= _PREFIX:
            return {}
        require_extra("schema", "schema linking", "rapidfuzz")
        from rapidfuzz import fuzz, process

        lengths = (
            length for length in self.by_length if 200 * min(length, len(word)) >= _MIN_RATIO * (length + len(word))
        )
        words = [other for length in lengths for other in self.by_length[length]]
        near = process.extractOne(word, words, scorer=fuzz.ratio, score_cutoff=_MIN_RATIO)
        # `patent` is no typo of `patient`.
        return {self.numbers[near[0]]: near[1] / 100} if near and not is_word(word, "english") else {}


def _relatedness(word: str, other: str) -> float:
    """Return the strength of two words with a common prefix."""
    shorter, longer = sorted((word, other), key=len)
    length_ratio = len(shorter) / len(longer)
    if longer.startswith(shorter):
        return 0.5 + 0.5 * length_ratio if length_ratio >= _IN_COMPOUND else 0.5
    shared = next(at for at, (first, second) in enumerate(zip(word, other, strict=False)) if first != second)
    return _SHARED_PREFIX if shared > _PREFIX and shared / len(longer) >= _IN_COMPOUND else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _NameList:
    """Names in sequence, by their words."""

    size: int
    holders: Mapping[int, Integers]
    """Number of a word → the names that have it, each once."""

    @classmethod
    def from_names(cls, names: Sequence[Sequence[int]]) -> "_NameList":
        holders: dict[int, list[int]] = defaultdict(list)
        for position, words in enumerate(names):
            for word in words:
                holders[word].append(position)
        arrays = {word: np.array(positions, dtype=np.int64) for word, positions in holders.items()}
        return cls(size=len(names), holders=arrays)

    def add_up(self, weights: Mapping[int, float]) -> Floats:
        """Return for each name the sum of the weights of its words."""
        sums = np.zeros(self.size)
        for number, weight in weights.items():
            if (holders := self.holders.get(number)) is not None:
                sums[holders] += weight
        return sums

    def raise_strengths(self, strengths: Floats, words: Sequence[Word], share: float = 1.0) -> None:
        """Raise the strength of each word in each name.

        Args:
            strengths: Strengths to change. Shape (words, names).
            words: The words of the question.
            share: Share of a word's strength that counts.
        """
        for row, word in enumerate(words):
            for number, strength in word.matches.items():
                if (holders := self.holders.get(number)) is not None:
                    strengths[row, holders] = np.maximum(strengths[row, holders], share * strength)


def _equal_positions(items: Iterable[Hashable]) -> dict[int, list[int]]:
    """Return the positions of equal items, by each of them."""
    positions: dict[Hashable, list[int]] = defaultdict(list)
    for at, item in enumerate(items):
        positions[item].append(at)
    return {at: equals for equals in positions.values() if len(equals) > 1 for at in equals}


def _document_of_table(table: TableSchema) -> Hashable:
    """Return what the text of a table's document is made of: no guess is in it."""
    return replace(table, foreign_keys=tuple(key for key in table.foreign_keys if not key.guessed))


def _document_of_column(table: TableSchema, column: ColumnSchema) -> Hashable:
    """Return what the text of a column's document is made of."""
    references = tuple(
        (key.table, key.target[key.columns.index(column.name)])
        for key in table.foreign_keys
        if column.name in key.columns and not key.guessed
    )
    return (
        *(table.full_name, table.model, column.name, column.aliases, column.type, column.comment),
        *(column.values, column.labels, references),
    )


class NameIndex:
    """Tables and columns of schemas, numbered, searched by words. Thread-safe, immutable."""

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
        self.table_numbers = {(name, table.full_name): at for at, (name, table) in enumerate(self.tables)}
        self.column_numbers = {(table, column.name): at for at, (table, column) in enumerate(self.columns)}
        self.equal_tables = _equal_positions(_document_of_table(table) for _, table in self.tables)
        """Number of a table → the tables of other databases with the same document."""
        self.equal_columns = _equal_positions(
            _document_of_column(self.tables[table][1], column) for table, column in self.columns
        )
        self.table_of_column = np.array([table for table, _ in self.columns], dtype=np.int64)
        self.first_tables = np.array(first_tables, dtype=np.int64)
        lengths = np.diff([*first_tables, len(self.tables)])
        self.database_of_table = np.repeat(np.arange(len(first_tables)), lengths)
        self.log_sizes: Floats = np.log(lengths)[self.database_of_table] if first_tables else np.zeros(0)
        self.tables_with_columns = np.flatnonzero([bool(table.columns) for _, table in self.tables])
        self._first_columns = np.array(first_columns, dtype=np.int64)[self.tables_with_columns]
        self._tables = _NameList.from_names([self._numbers(table.name, table.aliases) for _, table in self.tables])
        self._columns = _NameList.from_names([self._numbers(column.name, column.aliases) for _, column in self.columns])
        self._comments = _NameList.from_names(
            [self._numbers_of_comment(column.comment or "") for _, column in self.columns]
        )
        self._in_names = self._tables.holders.keys() | self._columns.holders.keys()
        self._weights = self._compute_idf()
        self._table_weights, self._column_weights = self._sum_weights(self._tables), self._sum_weights(self._columns)

    def _numbers(self, name: str, aliases: Sequence[str]) -> list[int]:
        stems = dict.fromkeys(word for label in (name, *aliases) for word in stem_name(label))
        # A name without a word, an emoji, still takes a position.
        return [self._vocabulary.number(word) for word in stems or (name,)]

    def _numbers_of_comment(self, comment: str) -> list[int]:
        stems = dict.fromkeys(stem(word) for word in question_words(comment) if is_content_word(word))
        return [self._vocabulary.number(word) for word in stems]

    def _compute_idf(self) -> Floats:
        """Return the idf of each word over tables with their columns."""
        holders: dict[int, set[int]] = defaultdict(set)
        for word, tables in self._tables.holders.items():
            holders[word].update(tables.tolist())
        for group in (self._columns, self._comments):
            for word, columns in group.holders.items():
                holders[word].update(self.table_of_column[columns].tolist())
        size = len(self.tables)
        return np.array([inverse_document_frequency(size, len(holders[word])) for word in range(len(holders))])

    def words(self, question: str) -> list[Word]:
        """Return the words of a question that match names, synonyms included."""
        question_tokens = question_words(_COUNT.sub(" ", question))
        stems = [stem(word) for word in question_tokens if is_content_word(word)]
        joined = (stem(first + second) for first, second in pairwise(question_tokens))
        compounds = [word for word in joined if word in self._vocabulary.numbers and len(word) > _PREFIX]
        entries = [self._word(text, {}) for text in dict.fromkeys((*stems, *compounds))]
        for word in dict.fromkeys(question_tokens):
            matches = self._synonym_matches(word)
            if matches:
                entries = [entry for entry in entries if entry.text != stem(word)]
                entries.append(self._word(stem(word) if is_content_word(word) else "", matches))
        synonym_stems = {stem(word) for term in self._synonyms.expand(question) for word in term.lower().split()}
        matched = {number for entry in entries for number in entry.matches}
        for text in sorted(synonym_stems & self._vocabulary.numbers.keys()):
            if self._vocabulary.numbers[text] not in matched:
                entries.append(self._word("", {self._vocabulary.numbers[text]: _SYNONYM}))
        return [word for word in entries if word.weight > 0]

    def row_names(self, question: str) -> list[str]:
        """Return likely names of rows: unknown words next to a table's name, or after `for`.

        Two words or more: in `the forest fire program` and `was forest fire run` no name of the schema has them.
        """
        tokens = question_words(question)
        tables = set(self._tables.holders)
        stop_words = find_stop_words(tokens)
        matches = [{} if token in stop_words else self._match_names(token) for token in tokens]
        names = []
        for unknown, group in groupby(range(len(tokens)), key=lambda at: matches[at] is None):
            positions = list(group)
            start, stop = positions[0], positions[-1] + 1
            neighbours = {number for at in (start - 1, stop) if 0 <= at < len(tokens) for number in matches[at] or ()}
            after_for = start > 0 and tokens[start - 1] in _BEFORE_ROW_NAME
            if unknown and len(positions) >= _ROW_NAME_WORDS and (after_for or neighbours & tables):
                names.append(" ".join(tokens[start:stop]))
        return names

    def is_name(self, word: str) -> bool:
        """Return whether a word is in a name, or common."""
        return self._match_names(word) is not None

    def _match_names(self, token: str) -> Mapping[int, float] | None:
        """Return the name words of a token; None for an unknown word."""
        if not is_content_word(token) or self._synonyms.expand(token):
            return {}
        matches = self._vocabulary.like(stem(token), misspelt=False)
        # A comment may give the name of a row as an example.
        return {number: strength for number, strength in matches.items() if number in self._in_names} or None

    def _synonym_matches(self, word: str) -> dict[int, float]:
        """Return the name words that the synonyms of a word match."""
        stems = (stem(part) for term in self._synonyms.expand(word) for part in term.lower().split())
        return {self._vocabulary.numbers[text]: _SYNONYM for text in stems if text in self._vocabulary.numbers}

    def _word(self, text: str, synonyms: Mapping[int, float]) -> Word:
        matches = {**synonyms, **(self._vocabulary.like(text) if text else {})}
        if not matches:
            return Word(text=text, weight=0.0, matches=matches)
        # The strongest match determines the weight.
        strongest = max(matches, key=lambda number: (matches[number], -number))
        return Word(text=text, weight=float(self._weights[strongest]) * matches[strongest], matches=matches)

    def match_table_names(self, words: Sequence[Word]) -> tuple[Floats, Floats]:
        """Return word strengths by table name, and the share matched.

        Shapes (words, tables) and (tables,).
        """
        strengths = np.zeros((len(words), len(self.tables)))
        self._tables.raise_strengths(strengths, words)
        return strengths, self._tables.add_up(self._best(words)) / self._table_weights

    def match_column_names(self, words: Sequence[Word]) -> tuple[Floats, Floats]:
        """Return word strengths by column name, and the share matched.

        Shapes (words, columns) and (columns,). A word that only a comment contains counts for less.
        """
        strengths = np.zeros((len(words), len(self.columns)))
        self._columns.raise_strengths(strengths, words)
        self._comments.raise_strengths(strengths, words, _IN_COMMENT)
        return strengths, self._columns.add_up(self._best(words)) / self._column_weights

    def _best(self, words: Sequence[Word]) -> dict[int, float]:
        """Return the weights of matched words of names, by the best match."""
        best: dict[int, float] = {}
        for word in words:
            for number, strength in word.matches.items():
                best[number] = max(best.get(number, 0.0), strength)
        return {number: strength * float(self._weights[number]) for number, strength in best.items()}

    def _sum_weights(self, names: _NameList) -> Floats:
        """Return the weight of all words of each name, never 0."""
        return np.maximum(names.add_up(dict(enumerate(self._weights.tolist()))), 1e-9)

    def columns_of_database(self, number: int) -> slice:
        """Return the slice of a database's columns, which are contiguous."""
        tables = np.searchsorted(self.database_of_table, [number, number + 1])
        start, stop = np.searchsorted(self.table_of_column, tables).tolist()
        return slice(start, stop)

    def columns_of_table(self, number: int) -> slice:
        """Return the slice of a table's columns, which are contiguous."""
        start, stop = np.searchsorted(self.table_of_column, (number, number + 1)).tolist()
        return slice(start, stop)

    def best_of_tables(self, column_values: Floats) -> Floats:
        """Return the maximum over the columns of each table.

        Along the last axis.
        """
        best = np.zeros((*column_values.shape[:-1], len(self.tables)))
        if len(self._first_columns):
            best[..., self.tables_with_columns] = np.maximum.reduceat(column_values, self._first_columns, axis=-1)
        return best

    def best_of_databases(self, table_values: Floats) -> Floats:
        """Return for each table the maximum over its database.

        Along the last axis.
        """
        if not self.tables:
            return table_values
        best: Floats = np.maximum.reduceat(table_values, self.first_tables, axis=-1)[..., self.database_of_table]
        return best

    def match_databases(self, strengths: Floats) -> Floats:
        """Return for each table the share of the question's words that its database matches.

        Every word counts the same: a rare word is rare because few databases look like this one, or by chance.

        Args:
            strengths: Strength of each word in each table. Shape (words, tables).
        """
        if not strengths.size:
            return np.zeros(len(self.tables))
        shares: Floats = np.maximum.reduceat(strengths, self.first_tables, axis=1).mean(axis=0)[self.database_of_table]
        return shares


def total_weight(words: Sequence[Word]) -> float:
    """Return the sum of the words' weights, never 0."""
    return math.fsum(word.weight for word in words) or 1.0
