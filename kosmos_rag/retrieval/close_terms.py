"""Close terms of the lexicon for words that no chunk contains.

A word with a typo and a fragment of a word find nothing by BM25. Words at edit distance one come first, then lexemes at
distance two and lexemes that the word is a prefix of. All reads are under row-level security: neither the decision that
a word is absent nor a close term depends on chunks that the reader may not read. Weights follow the blended frequencies
of Lucene's TopTermsBlendedFreqScoringRewrite: a rare close term is not preferred for its rarity.
"""

import re
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from cachetools import LRUCache

from kosmos_rag.core.text.analysis import split_bigrams
from kosmos_rag.core.text.edits import edit_distance, single_edits
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.storage.binary import array
from kosmos_rag.storage.sql import statement

TermRow: TypeAlias = tuple[str, str, int | None, int | None, float]
"""Collection, lexeme, its id and number of chunks (None where no chunk contains it), weight: of `search_state`."""

_WORD = re.compile(r"[^\W_]+")
_MIN_LENGTH = 4
_MIN_LENGTH_TWO_EDITS = 8
_SHARED_PREFIX = 3
"""Letters that a word has in common with its lexeme, and with lexemes at distance two."""
_MAX_ENDING = 4
_MAX_WORDS = 8
"""Words of a query for which close terms are looked up."""
_MAX_CLOSE = 3
"""Close terms of a word in a collection."""
_ONE_EDIT, _FAR = 0.7, 0.5
"""Weight of a close term at distance one, and of others, relative to the word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _CloseTerm:
    """A lexeme of a collection that is close to an absent word."""

    collection: str
    word: str
    lexeme: str
    label: str
    """As the warning shows it: the word that the lexeme is of, where it is known."""
    id: int
    chunks: int
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _WordMatches:
    """Lexemes and close terms of an absent word.

    Both are empty for a word that a chunk contains.
    """

    lexemes: Sequence[tuple[str, str, str]] = ()
    """Collection, word and lexeme: one for each language."""
    close: Sequence[_CloseTerm] = ()


class CloseTermCache:
    """LRU cache of what the lexicon has for absent words. Thread-safe.

    Entries are never stale: a key contains the state of the collections, and which access control lists the reader may
    read.
    """

    def __init__(self, size: int) -> None:
        """Args: size: Most words."""
        self._lock = threading.Lock()
        self._entries: LRUCache[tuple[Hashable, str], _WordMatches] = LRUCache(maxsize=size)

    def find(self, state: Hashable, words: Iterable[str]) -> dict[str, _WordMatches]:
        """Return the entries of those words that are cached.

        Args:
            state: Tenant, collections and readers, with the epochs.
            words: The words.
        """
        with self._lock:
            entries = {word: self._entries.get((state, word)) for word in words}
        return {word: entry for word, entry in entries.items() if entry is not None}

    def put(self, state: Hashable, entries: Mapping[str, _WordMatches]) -> None:
        """Add entries and evict the least recently used."""
        with self._lock:
            for word, entry in entries.items():
                self._entries[state, word] = entry


def replace_absent_words(
    connection: psycopg.Connection | None,
    query: RetrieverQuery,
    rows: Sequence[TermRow],
    cache: CloseTermCache,
    state: Hashable,
) -> tuple[list[TermRow], tuple[str, ...]] | None:
    """Replace words that no chunk contains by close terms.

    Returns the terms, and a warning for each replaced word; None without a connection, if the cache lacks a word.

    Args:
        connection: In the transaction of the snapshot; None to use the cache alone.
        query: The query.
        rows: Its terms.
        cache: Of earlier queries.
        state: Tenant, collections and readers, with the epochs.
    """
    words = _suspects(query.parsed.text, rows)
    if not words:
        return list(rows), ()
    matches = cache.find(state, words)
    missing = [word for word in words if word not in matches]
    if missing:
        if connection is None:
            return None
        loaded = _match_words(connection, query, missing)
        cache.put(state, loaded)
        matches |= loaded
    lexemes = [entry for word in words for entry in matches[word].lexemes]
    close = [term for word in words for term in matches[word].close]
    # Warnings are in this order; a term that is close to two words counts for the first.
    close.sort(key=lambda term: (-term.weight, term.collection, term.word))
    return _replace(rows, lexemes, close)


def _match_words(
    connection: psycopg.Connection, query: RetrieverQuery, words: Sequence[str]
) -> dict[str, _WordMatches]:
    """Look up words, and close terms of those that no chunk contains."""
    # The variants of a word are analysed only if no chunk has the word: there are hundreds.
    analysed = _analyse(connection, query, {word: word for word in words})
    present = {word for _, word, _, _, lexeme_id, _ in analysed if lexeme_id is not None}
    lexemes = dict.fromkeys(
        (collection, word, lexeme) for collection, word, lexeme, *_ in analysed if word not in present
    )
    edits = {word: " ".join(dict.fromkeys(_edits(word))) for word in words if word not in present}
    close = [
        _CloseTerm(
            collection=collection,
            word=word,
            lexeme=lexeme,
            label=variant,
            id=lexeme_id,
            chunks=chunks,
            weight=_ONE_EDIT,
        )
        for collection, word, lexeme, variant, lexeme_id, chunks in _analyse(connection, query, edits)
        if lexeme_id is not None and chunks is not None
    ]
    matched_words = {(term.collection, term.word) for term in close}
    close += _far_terms(connection, query, [entry for entry in lexemes if entry[:2] not in matched_words])
    return {
        word: _WordMatches(
            lexemes=[entry for entry in lexemes if entry[1] == word],
            close=[term for term in close if term.word == word],
        )
        for word in words
    }


def _analyse(
    connection: psycopg.Connection, query: RetrieverQuery, variants: Mapping[str, str]
) -> list[tuple[str, str, str, str, int | None, int | None]]:
    """Return collection, word, lexeme, variant, id and chunks of variants of words.

    Without id and chunks where no chunk contains the lexeme; then only the word itself has a row.

    Args:
        connection: In the transaction of the snapshot.
        query: The query.
        variants: The variants of each word, with spaces between them.
    """
    variants = {word: of_word for word, of_word in variants.items() if of_word}
    if not variants:
        return []
    values = {
        **query.scope,
        "words": array(connection, "text", list(variants)),
        "variants": array(connection, "text", list(variants.values())),
    }
    return connection.execute(statement("close_terms"), values).fetchall()


def _suspects(text: str, rows: Sequence[TermRow]) -> list[str]:
    """Return the words of a text that may have an absent lexeme.

    A stem begins as its word does.
    """
    indexed_lexemes = {lexeme for _, lexeme, lexeme_id, *_ in rows if lexeme_id is not None}
    absent = {lexeme[:_SHARED_PREFIX] for _, lexeme, *_ in rows if lexeme not in indexed_lexemes}
    words = dict.fromkeys(_WORD.findall(text.lower())) if absent else {}
    return [
        word
        for word in words
        if len(word) >= _MIN_LENGTH and word[:_SHARED_PREFIX] in absent and split_bigrams(word) == word
    ][:_MAX_WORDS]


def _edits(word: str) -> Iterable[str]:
    """Return the words at distance one.

    A code has none: its neighbour is another thing.
    """
    return single_edits(word) if word.isalpha() else ()


def _far_terms(
    connection: psycopg.Connection, query: RetrieverQuery, absent: Sequence[tuple[str, str, str]]
) -> list[_CloseTerm]:
    """Return lexemes at distance two, and continuations of absent ones."""
    terms: list[_CloseTerm] = []
    lookups = []
    for collection, word, lexeme in absent:
        if len(lexeme) < _MIN_LENGTH:
            continue
        two_edits = len(word) >= _MIN_LENGTH_TWO_EDITS and word.isalpha()
        prefix = lexeme[:_SHARED_PREFIX] if two_edits else lexeme
        values = {**query.scope, "collection": collection, "prefix": prefix, "above": f"{prefix}\U0010ffff"}
        # All are sent before the first result is fetched: the pipeline makes them one round trip.
        cursor = connection.execute(statement("lexemes_by_prefix"), values)
        lookups.append((collection, word, lexeme, two_edits, cursor))
    for collection, word, lexeme, two_edits, cursor in lookups:
        for other, lexeme_id, chunks in cursor.fetchall():
            if other.startswith(lexeme) or (two_edits and _is_two_edits_away(lexeme, other)):
                terms.append(
                    _CloseTerm(
                        collection=collection,
                        word=word,
                        lexeme=other,
                        label=other,
                        id=lexeme_id,
                        chunks=chunks,
                        weight=_FAR,
                    )
                )
    return terms


def _is_two_edits_away(word: str, lexeme: str) -> bool:
    """Return whether a word is two edits from a lexeme.

    An ending that the stemmer did not know counts as one edit.
    """
    return edit_distance(word, lexeme, 2) <= 2 or (
        len(lexeme) < len(word) <= len(lexeme) + _MAX_ENDING and edit_distance(word[: len(lexeme)], lexeme, 1) <= 1
    )


def _replace(
    rows: Sequence[TermRow], absent: Iterable[tuple[str, str, str]], close: Sequence[_CloseTerm]
) -> tuple[list[TermRow], tuple[str, ...]]:
    """Replace the rows of absent words by those of their close terms."""
    query_terms = {(collection, lexeme_id) for collection, _, lexeme_id, *_ in rows}
    replaced: set[tuple[str, str]] = set()
    added: list[TermRow] = []
    words: dict[str, dict[str, None]] = {}
    for collection, word in dict.fromkeys((term.collection, term.word) for term in close):
        of_word = [term for term in close if (term.collection, term.word) == (collection, word)]
        best = sorted(of_word, key=lambda term: (-term.weight, -term.chunks, term.lexeme))[:_MAX_CLOSE]
        of_absent = {
            (owner, lexeme) for owner, absent_word, lexeme in absent if (owner, absent_word) == (collection, word)
        }
        weight = max((row[4] for row in rows if row[:2] in of_absent), default=1.0)
        replaced |= of_absent
        blended = max(term.chunks for term in best)
        added += [
            (collection, term.lexeme, term.id, blended, weight * term.weight)
            for term in best
            if (collection, term.id) not in query_terms
        ]
        query_terms |= {(collection, term.id) for term in best}
        words.setdefault(word, {}).update(dict.fromkeys(term.label for term in best))
    other_rows = [row for row in rows if row[:2] not in replaced]
    warnings = tuple(
        f"no chunk contains {word!r}; chunks with {' or '.join(map(repr, labels))} were searched"
        for word, labels in words.items()
    )
    return sorted([*other_rows, *added], key=lambda row: (row[0], row[2] is None, row[2] or 0)), warnings
