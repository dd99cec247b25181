"""Analyse texts by words that the server has analysed before.

A word is what white space separates. PostgreSQL's parser has one state after white space, so the tsvector of a text
follows from those of its words and from the number of positions that each word takes. Few words of a batch are new.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.storage.binary import array, batches
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tsvectors import LexemeEntries, locate_lexemes

_MAX_BYTES = 2**18
"""Length of the words of a cache, of about 40,000 words. A larger cache starts again: most of its words were rare."""
_MAX_CACHES = 8
"""Configurations of databases with a cache."""
_NEW_WORDS = 0.5
"""Share of new words in a batch above which the server reads whole texts: a word alone takes over twice as long."""
_MAX_POSITION = 2**14 - 1
"""Positions from here on are equal in a tsvector."""
_MAX_FREQUENCY = 250
"""Positions of a lexeme in a text. PostgreSQL keeps no more than 255, of a word and the one after it too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Words:
    """Analysed words, as arrays by word and by entry.

    An entry is one position of a lexeme of a word.
    """

    size: int
    """Bytes of all words."""
    numbers: dict[bytes, int]
    lexemes: dict[bytes, int]
    advances: NDArray[np.intp]
    """Positions that a word takes, stop words included."""
    ends: NDArray[np.intp]
    """Number of the entries up to the end of each word."""
    entry_lexemes: NDArray[np.intp]
    entry_positions: NDArray[np.intp]
    """From 1 at the start of the word."""


_NO_NUMBERS = np.empty(0, dtype=np.intp)
_NO_WORDS = _Words(
    size=0,
    numbers={},
    lexemes={},
    advances=_NO_NUMBERS,
    ends=_NO_NUMBERS,
    entry_lexemes=_NO_NUMBERS,
    entry_positions=_NO_NUMBERS,
)


class WordCache:
    """Words of one text search configuration, as one database analyses them.

    Thread-safe: the words are replaced as a whole.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self._words = _NO_WORDS

    def send(self, connection: psycopg.Connection, texts: Sequence[str]) -> "WordBatch | None":
        """Send the new words of texts for analysis.

        The result is None if so many words are new that the server reads the texts faster.
        """
        words_by_text = [_split(text) for text in texts]
        words = list(chain.from_iterable(words_by_text))
        base = self._words
        distinct = set(words)
        new = sorted(distinct.difference(base.numbers))
        if len(new) > _NEW_WORDS * len(words):
            return None
        if base.size + sum(map(len, new)) > _MAX_BYTES:
            base, new = _NO_WORDS, sorted(distinct)
        cursors = []
        for columns in batches({"words": new}):
            contents = [
                word[1:].decode() if word.startswith(b" ") else f" {word.decode()}" for word in columns["words"]
            ]
            values = {"language": self.language, "words": array(connection, "text", contents)}
            cursors.append(connection.cursor(binary=True).execute(statement("analyse_words"), values))
        sizes = np.array([len(text_words) for text_words in words_by_text], dtype=np.intp)
        return WordBatch(self, base, words, sizes, new, cursors)

    def keep(self, words: _Words) -> None:
        """Replace the words of the cache."""
        self._words = words


def _split(text: str) -> list[bytes]:
    """Return the words of a text.

    A space marks a first one that begins with no letter: the parser reads `..` as a path there, and drops it elsewhere.
    """
    content = text.encode()
    words = content.split()
    if words and not content[:1].isalpha() and not content[:1].isspace():
        words[0] = b" " + words[0]
    return words


@lru_cache(maxsize=_MAX_CACHES)
def _get_cache(database: tuple[str, int, str], language: str, definition: str) -> WordCache:  # noqa: ARG001 — keys
    return WordCache(language)


def send_definitions(connection: psycopg.Connection, languages: Sequence[str]) -> psycopg.Cursor:
    """Ask for the definitions of text search configurations; `read_caches` waits for them."""
    return connection.execute(statement("word_analysers"), {"languages": sorted(set(languages))})


def read_caches(connection: psycopg.Connection, definitions: psycopg.Cursor) -> dict[str, WordCache]:
    """Return the caches of text search configurations.

    A configuration with a parser or a dictionary of another kind has none: a thesaurus joins words.
    """
    info = connection.info
    database = (info.host, info.port, info.dbname)
    return {language: _get_cache(database, language, definition) for language, definition in definitions.fetchall()}


class WordBatch:
    """Texts whose new words the server analyses."""

    def __init__(
        self,
        cache: WordCache,
        base: _Words,
        words: Sequence[bytes],
        sizes: NDArray[np.intp],
        new: list[bytes],
        cursors: Sequence[psycopg.Cursor],
    ) -> None:
        self._cache = cache
        self._base = base
        self._words = words
        self._sizes = sizes
        self._new = new
        self._cursors = cursors

    def read(self) -> tuple[LexemeEntries, NDArray[np.bool_]]:
        """Return the lexemes of the texts, and which texts have more positions than a tsvector keeps."""
        base = self._base
        if self._new:
            rows = [tsvector for cursor in self._cursors for (tsvector,) in cursor.fetchall()]
            base = _add_words(base, self._new, rows)
            self._cache.keep(base)
        numbers = np.fromiter(map(base.numbers.__getitem__, self._words), dtype=np.intp, count=len(self._words))
        return _collect_entries(base, numbers, self._sizes)


def _add_words(words: _Words, additions: Sequence[bytes], tsvectors: Sequence[bytes]) -> _Words:
    """Return words with others added to them.

    Args:
        words: what the result has too.
        additions: words without an analysis.
        tsvectors: one for each addition, with one more word after it.
    """
    places = locate_lexemes(tsvectors)
    positions = places.read_positions()
    entry_places = np.repeat(np.arange(len(places.rows)), places.frequencies)
    rows = places.rows[entry_places]
    order = np.lexsort((positions, rows))
    # The last position of each tsvector is that of the word after it.
    lasts = np.cumsum(np.bincount(rows, minlength=len(additions))) - 1
    advances = positions[order][lasts] - 1
    order = np.delete(order, lasts)
    lexemes, names = dict(words.lexemes), places.read_lexemes()
    numbers = [lexemes.setdefault(names[place], len(lexemes)) for place in entry_places[order].tolist()]
    first = len(words.numbers)
    ends = len(words.entry_lexemes) + np.cumsum(np.bincount(rows[order], minlength=len(additions)))
    return _Words(
        size=words.size + sum(map(len, additions)),
        numbers={**words.numbers, **{word: first + at for at, word in enumerate(additions)}},
        lexemes=lexemes,
        advances=np.concatenate([words.advances, advances]),
        ends=np.concatenate([words.ends, ends]),
        entry_lexemes=np.concatenate([words.entry_lexemes, np.array(numbers, dtype=np.intp)]),
        entry_positions=np.concatenate([words.entry_positions, positions[order]]),
    )


def _collect_entries(
    words: _Words, numbers: NDArray[np.intp], sizes: NDArray[np.intp]
) -> tuple[LexemeEntries, NDArray[np.bool_]]:
    """Join the words of texts.

    Args:
        words: all words of the texts.
        numbers: the words of the texts, one text after the other.
        sizes: words of each text.
    """
    text_of_word = np.repeat(np.arange(len(sizes)), sizes)
    before = np.concatenate([[0], np.cumsum(words.advances[numbers])])  # positions before each word, and after the last
    text_starts = before[np.cumsum(sizes) - sizes]
    starts = np.concatenate([[0], words.ends])
    counts = words.ends[numbers] - starts[numbers]
    ends = np.cumsum(counts)
    places = np.repeat(starts[numbers] - (ends - counts), counts) + np.arange(counts.sum())
    rows = np.repeat(text_of_word, counts)
    positions = np.repeat(before[:-1], counts) - text_starts[rows] + words.entry_positions[places]
    vocabulary, ranks = _rank_lexemes(words, words.entry_lexemes[places])
    keys = rows * len(vocabulary) + ranks
    order = np.argsort(keys, kind="stable")  # positions stay ascending
    keys = keys[order]
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    frequencies = np.diff(firsts, append=len(keys))
    entries = LexemeEntries(
        vocabulary=vocabulary,
        rows=rows[order][firsts],
        lexemes=ranks[order][firsts],
        frequencies=frequencies,
        positions=positions[order],
    )
    oversized = np.zeros(len(sizes), dtype=np.bool_)
    oversized[entries.rows[frequencies > _MAX_FREQUENCY]] = True
    oversized[rows[positions >= _MAX_POSITION]] = True
    return entries, oversized


def _rank_lexemes(words: _Words, lexemes: NDArray[np.intp]) -> tuple[list[bytes], NDArray[np.intp]]:
    """Return the distinct lexemes, sorted, and the place of each entry's lexeme among them."""
    is_present = np.zeros(len(words.lexemes), dtype=np.bool_)
    is_present[lexemes] = True
    names = list(words.lexemes)
    vocabulary = sorted(names[at] for at in np.flatnonzero(is_present).tolist())
    ranks = np.zeros(len(names), dtype=np.intp)
    ranks[[words.lexemes[lexeme] for lexeme in vocabulary]] = np.arange(len(vocabulary))
    return vocabulary, ranks[lexemes]
