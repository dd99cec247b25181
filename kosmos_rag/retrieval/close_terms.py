"""Close terms of the lexicon for words that no chunk contains.

A word with a typo, a fragment of a word and a new compound find nothing by BM25. Words at edit distance one come first,
then the parts of a compound, then lexemes at distance two and lexemes that the word is a prefix of. A word of the
language is no typo: only a compound among them is replaced, by its parts. All reads are under row-level security:
neither the decision that a word is absent nor a close term depends on chunks that the reader may not read. Weights
follow the blended frequencies of Lucene's TopTermsBlendedFreqScoringRewrite: a rare close term is not preferred for its
rarity.
"""

import re
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from cachetools import LRUCache

from kosmos_rag.core.text.accents import fold_accents
from kosmos_rag.core.text.analysis import separate_words
from kosmos_rag.core.text.compounds import COMPOUNDING, split_compound
from kosmos_rag.core.text.dictionary import is_word
from kosmos_rag.retrieval.edits import edit_distance, single_edits
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.storage.binary import array
from kosmos_rag.storage.sql import statement

TermRow: TypeAlias = tuple[str, str, int | None, int | None, float]
"""Collection, lexeme, its id and number of chunks (None where no chunk contains it), weight: of `search_state`."""

_WORD = re.compile(r"[^\W_]+")
_MIN_LENGTH = 4
_LETTERS_OF_AN_EDIT = 5
"""Letters of a word for each edit to a close term: four fifths of its letters stay."""
_SHARED_PREFIX = 3
"""Letters that a word has in common with its lexeme, and with lexemes at distance two."""
_MAX_ENDING = 4
_MAX_WORDS = 8
"""Words of a query for which close terms are looked up."""
_MAX_CLOSE = 3
"""Close terms of a word in a collection; a compound has all of its parts."""
_ONE_EDIT, _PART, _FAR = 0.7, 0.7, 0.5
"""Weight of a close term at distance one, of a part, and of others, relative to the word."""


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
    is_part: bool = False
    """It is a part of a compound: another word, which has its own frequency."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _AnalysedWord:
    """A lexeme of a word, or of a variant of it."""

    collection: str
    word: str
    lexeme: str
    variant: str
    id: int | None
    """None where no chunk contains the lexeme; then only the word itself is listed."""
    chunks: int | None
    languages: Sequence[str]
    """Text search configurations that have the lexeme for the variant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WordMatches:
    """Lexemes and close terms of an absent word.

    Both are empty for a word that a chunk contains.
    """

    lexemes: Sequence[tuple[str, str, str]] = ()
    """Collection, word and lexeme: one for each language."""
    close: Sequence[_CloseTerm] = ()


class CloseTermCache:
    """LRU cache of what the lexicon has for absent words. Thread-safe.

    Entries are never stale: a key contains the states of the collections for the reader.
    """

    def __init__(self, size: int) -> None:
        """Args: size: Most words."""
        self._lock = threading.Lock()
        self._entries: LRUCache[tuple[Hashable, str], WordMatches] = LRUCache(maxsize=size)

    def find(self, state: Hashable, words: Iterable[str]) -> dict[str, WordMatches]:
        """Return the entries of those words that are cached.

        Args:
            state: Tenant, and the states of the collections.
        """
        with self._lock:
            entries = {word: self._entries.get((state, word)) for word in words}
        return {word: entry for word, entry in entries.items() if entry is not None}

    def put(self, state: Hashable, entries: Mapping[str, WordMatches]) -> None:
        """Add entries and evict the least recently used."""
        with self._lock:
            for word, entry in entries.items():
                self._entries[state, word] = entry


def replace_absent_words(
    query: RetrieverQuery,
    rows: Sequence[TermRow],
    cache: CloseTermCache,
    state: Hashable,
    match: Callable[[Sequence[str]], Mapping[str, WordMatches]],
) -> tuple[list[TermRow], tuple[str, ...]]:
    """Replace words that no chunk contains by close terms.

    Returns the terms, and a warning for each replaced word.

    Args:
        cache: Of earlier queries.
        state: Tenant, and the states of the collections.
        match: Looks up words that are not cached.
    """
    words = _suspects(query.parsed.text, rows)
    if not words:
        return list(rows), ()
    matches = cache.find(state, words)
    if missing := [word for word in words if word not in matches]:
        looked_up = match(missing)
        cache.put(state, looked_up)
        matches |= looked_up
    lexemes = [entry for word in words for entry in matches[word].lexemes]
    close = [term for word in words for term in matches[word].close]
    if len(words) > 1 and all(row[2] is None for row in rows):
        # A question whose words all are absent is about something else, and not full of typos.
        close = [term for term in close if term.is_part]
    # Warnings are in this order; a term that is close to two words counts for the first.
    close.sort(key=lambda term: (-term.weight, term.collection, term.word))
    return _replace(rows, lexemes, close)


def match_words(connection: psycopg.Connection, query: RetrieverQuery, words: Sequence[str]) -> dict[str, WordMatches]:
    """Look up words, and close terms of those that no chunk contains.

    Args:
        connection: In the transaction of the snapshot.
    """
    # The variants of a word are analysed only if no chunk has the word: there are hundreds.
    analysed = _analyse(connection, query, {word: word for word in words})
    present = {entry.word for entry in analysed if entry.id is not None}
    absent = [entry for entry in analysed if entry.word not in present]
    lexemes = dict.fromkeys((entry.collection, entry.word, entry.lexeme) for entry in absent)
    dictionary_words = {
        (entry.collection, entry.word)
        for entry in absent
        if any(is_word(entry.word, language) for language in entry.languages)
    }
    unknown = [entry for entry in lexemes if entry[:2] not in dictionary_words]
    edits = {word: " ".join(dict.fromkeys(_edits(word))) for _, word, _ in unknown}
    variants = [
        entry for entry in _analyse(connection, query, edits) if (entry.collection, entry.word) not in dictionary_words
    ]
    close = _close_terms(variants, _ONE_EDIT)
    compounds = [entry for entry in absent if (entry.collection, entry.word) not in _matched_words(close)]
    close += _part_terms(connection, query, compounds)
    matched_words = _matched_words(close)
    close += _far_terms(connection, query, [entry for entry in unknown if entry[:2] not in matched_words])
    return {
        word: WordMatches(
            lexemes=[entry for entry in lexemes if entry[1] == word],
            close=[term for term in close if term.word == word],
        )
        for word in words
    }


def _matched_words(close: Iterable[_CloseTerm]) -> set[tuple[str, str]]:
    """Return collection and word of close terms."""
    return {(term.collection, term.word) for term in close}


def _close_terms(analysed: Iterable[_AnalysedWord], weight: float, *, is_part: bool = False) -> list[_CloseTerm]:
    """Return those lexemes of variants that chunks contain, as close terms."""
    return [
        _CloseTerm(
            collection=entry.collection,
            word=entry.word,
            lexeme=entry.lexeme,
            label=entry.variant,
            id=entry.id,
            chunks=entry.chunks,
            weight=weight,
            is_part=is_part,
        )
        for entry in analysed
        if entry.id is not None and entry.chunks is not None
    ]


def _analyse(connection: psycopg.Connection, query: RetrieverQuery, variants: Mapping[str, str]) -> list[_AnalysedWord]:
    """Return the lexemes of words and of variants of them.

    Args:
        connection: In the transaction of the snapshot.
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
    return [
        _AnalysedWord(
            collection=collection,
            word=word,
            lexeme=lexeme,
            variant=variant,
            id=lexeme_id,
            chunks=chunks,
            languages=languages,
        )
        for collection, word, lexeme, variant, lexeme_id, chunks, languages in connection.execute(
            statement("close_terms"), values
        ).fetchall()
    ]


def _part_terms(
    connection: psycopg.Connection, query: RetrieverQuery, absent: Iterable[_AnalysedWord]
) -> list[_CloseTerm]:
    """Return the parts of absent compounds.

    Only in collections with a language whose compounds are split.
    """
    split = {(entry.collection, entry.word) for entry in absent if not COMPOUNDING.isdisjoint(entry.languages)}
    parts = {word: " ".join(split_compound(word)) for _, word in sorted(split)}
    analysed = _analyse(connection, query, parts)
    return _close_terms([entry for entry in analysed if (entry.collection, entry.word) in split], _PART, is_part=True)


def _suspects(text: str, rows: Sequence[TermRow]) -> list[str]:
    """Return the words of a text that may have an absent lexeme.

    A stem begins as its word does, with or without accents.
    """
    indexed_lexemes = {lexeme for _, lexeme, lexeme_id, *_ in rows if lexeme_id is not None}
    absent = {lexeme[:_SHARED_PREFIX] for _, lexeme, *_ in rows if lexeme not in indexed_lexemes}
    words = dict.fromkeys(_WORD.findall(text.lower())) if absent else {}
    return [
        word
        for word in words
        if len(word) >= _MIN_LENGTH
        and not absent.isdisjoint((word[:_SHARED_PREFIX], fold_accents(word)[:_SHARED_PREFIX]))
        and separate_words(word) == word
    ][:_MAX_WORDS]


def _edits(word: str) -> Iterable[str]:
    """Return the words at distance one.

    A code has none: its neighbour is another thing.
    """
    return single_edits(word) if _max_edits(word) >= 1 else ()


def _max_edits(word: str) -> int:
    return len(word) // _LETTERS_OF_AN_EDIT if word.isalpha() else 0


def _far_terms(
    connection: psycopg.Connection, query: RetrieverQuery, absent: Sequence[tuple[str, str, str]]
) -> list[_CloseTerm]:
    """Return lexemes at distance two, and continuations of absent ones."""
    terms: list[_CloseTerm] = []
    lookups = []
    for collection, word, lexeme in absent:
        if len(lexeme) < _MIN_LENGTH:
            continue
        two_edits = _max_edits(word) >= 2
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
        best = sorted(of_word, key=lambda term: (-term.weight, -term.chunks, term.lexeme))
        best = [term for number, term in enumerate(best) if number < _MAX_CLOSE or term.is_part]
        of_absent = {
            (owner, lexeme) for owner, absent_word, lexeme in absent if (owner, absent_word) == (collection, word)
        }
        weight = max((row[4] for row in rows if row[:2] in of_absent), default=1.0)
        replaced |= of_absent
        blended = max(term.chunks for term in best)
        added += [
            (collection, term.lexeme, term.id, term.chunks if term.is_part else blended, weight * term.weight)
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
