"""Analyse texts for the lexical index: their lexemes with positions, as PostgreSQL's text search finds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.text.accents import accented_words
from kosmos_rag.core.text.analysis import index_text
from kosmos_rag.core.text.compounds import find_parts
from kosmos_rag.storage.binary import array, batches
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tsvectors import encode_tsvectors, locate_lexemes
from kosmos_rag.storage.word_analysis import WordBatch, read_caches, send_definitions


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Lexemes of a batch's chunks with frequencies, as parallel arrays."""

    tsvectors: list[bytes]
    """One for each chunk, in binary form."""
    vocabulary: list[str]
    """Distinct lexemes, sorted."""
    rows: NDArray[np.intp]
    """Chunk number of each entry; entries are in no order."""
    lexemes: NDArray[np.intp]
    """Position of each entry's lexeme in the vocabulary."""
    frequencies: NDArray[np.intp]

    @cached_property
    def lengths(self) -> NDArray[np.intp]:
        """Length of each chunk: lexemes with repetitions."""
        return np.bincount(self.rows, weights=self.frequencies, minlength=len(self.tsvectors)).astype(np.intp)


_MIN_TEXTS = 32
"""Texts from which on it pays to ask for the definition of the text search configuration first."""


class PendingAnalysis:
    """Texts on their way through the analysis."""

    def __init__(self, connection: psycopg.Connection, texts: Sequence[str], languages: Sequence[str]) -> None:
        definitions = send_definitions(connection, languages) if len(texts) >= _MIN_TEXTS else None
        self._connection = connection
        self._languages = languages
        self._texts = [index_text(text) for text in texts]
        self._added = [
            f"{accented_words(text)} {find_parts(text, language)}".strip()
            for text, language in zip(texts, languages, strict=True)
        ]
        caches = read_caches(connection, definitions) if definitions is not None else {}
        self._batches: list[tuple[list[int], WordBatch]] = []
        by_words: set[int] = set()
        for language, cache in caches.items():
            numbers = [number for number in range(len(texts)) if self._has_words(number, language)]
            if numbers and (batch := cache.send(connection, [self._texts[number] for number in numbers])) is not None:
                self._batches.append((numbers, batch))
                by_words.update(numbers)
        self._whole = [number for number in range(len(texts)) if number not in by_words]
        self._cursors = self._send_whole(self._whole)

    def _has_words(self, number: int, language: str) -> bool:
        # The parser reads a tag with the white space in it. Added words take their positions after the text.
        return self._languages[number] == language and not self._added[number] and "<" not in self._texts[number]

    def _send_whole(self, numbers: Sequence[int]) -> list[psycopg.Cursor]:
        columns = {"texts": self._texts, "languages": self._languages, "added": self._added}
        selected = {name: [column[number] for number in numbers] for name, column in columns.items()}
        return [
            self._connection.cursor(binary=True).execute(
                statement("analyse"),
                {name: array(self._connection, "text", column) for name, column in columns.items()},
            )
            for columns in batches(selected)
        ]

    def read(self) -> Analysis:
        """Wait for the result."""
        tsvectors: list[bytes] = [b""] * len(self._texts)
        oversized = []
        for numbers, batch in self._batches:
            entries, is_oversized = batch.read()
            encoded = encode_tsvectors(entries, len(numbers))
            if len(numbers) == len(self._texts) and not is_oversized.any():
                return Analysis(
                    tsvectors=encoded,
                    vocabulary=[lexeme.decode() for lexeme in entries.vocabulary],
                    rows=entries.rows,
                    lexemes=entries.lexemes,
                    frequencies=entries.frequencies,
                )
            for number, tsvector in zip(numbers, encoded, strict=True):
                tsvectors[number] = tsvector
            oversized += [numbers[at] for at in np.flatnonzero(is_oversized).tolist()]
        for numbers, cursors in ((self._whole, self._cursors), (oversized, self._send_whole(oversized))):
            rows = (tsvector for cursor in cursors for (tsvector,) in cursor.fetchall())
            for number, tsvector in zip(numbers, rows, strict=True):
                tsvectors[number] = tsvector
        return parse_tsvectors(tsvectors)


def send_texts(connection: psycopg.Connection, texts: Sequence[str], languages: Sequence[str]) -> PendingAnalysis:
    """Send texts for analysis; needs no lock.

    In a pipeline the server analyses while the client continues.

    Args:
        connection: any connection to the database.
        texts: texts to analyse.
        languages: text search configuration of each text.
    """
    return PendingAnalysis(connection, texts, languages)


def parse_tsvectors(tsvectors: list[bytes]) -> Analysis:
    """Parse tsvectors in binary form, as `tsvectorsend` of PostgreSQL writes them."""
    places = locate_lexemes(tsvectors)
    lexemes = places.read_lexemes()
    numbers = {lexeme: number for number, lexeme in enumerate(sorted(set(lexemes)))}
    return Analysis(
        tsvectors=tsvectors,
        vocabulary=[lexeme.decode() for lexeme in numbers],
        rows=places.rows,
        lexemes=np.fromiter(map(numbers.__getitem__, lexemes), dtype=np.intp, count=len(lexemes)),
        frequencies=places.frequencies,
    )
