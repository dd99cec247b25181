"""Words of the languages of simplemma, as hashes: the words themselves take twelve times the memory."""

import threading
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LANGUAGE_CODES = {
    "armenian": "hy",
    "catalan": "ca",
    "danish": "da",
    "dutch": "nl",
    "english": "en",
    "finnish": "fi",
    "french": "fr",
    "german": "de",
    "greek": "el",
    "hindi": "hi",
    "hungarian": "hu",
    "indonesian": "id",
    "irish": "ga",
    "italian": "it",
    "lithuanian": "lt",
    "norwegian": "nb",
    "portuguese": "pt",
    "romanian": "ro",
    "russian": "ru",
    "spanish": "es",
    "swedish": "sv",
    "turkish": "tr",
}
"""Codes of simplemma, by text search configuration of PostgreSQL."""

_loading = threading.Lock()


def is_word(word: str, language: str) -> bool:
    """Return whether the dictionary of a language has a form, in lower case or capitalised.

    Args:
        language: Text search configuration; one without a dictionary has no words.
    """
    code = LANGUAGE_CODES.get(language)
    return code is not None and any(is_listed(form, code) for form in (word.lower(), word.capitalize()))


def is_listed(word: str, code: str) -> bool:
    """Return whether a dictionary has a form, in this case of letters.

    Args:
        code: Code of the language in simplemma. Its dictionary is loaded by the first call, in up to 1.3 seconds.
    """
    with _loading:
        hashes = _read_dictionary(code)
    key = hash(word)
    at = int(hashes.searchsorted(key))
    return at < len(hashes) and int(hashes[at]) == key


@lru_cache(maxsize=len(LANGUAGE_CODES))
def _read_dictionary(code: str) -> NDArray[np.int64]:
    """Return the hashes of the words, sorted: 9 MB for German, whose words take 120."""
    # The import compiles the rules of all its languages, a tenth of the start of a worker.
    from simplemma.strategies import DefaultDictionaryFactory

    words = DefaultDictionaryFactory(cache_max_size=0).get_dictionary(code)
    hashes = np.fromiter(map(hash, words), dtype=np.int64, count=len(words))
    hashes.sort()
    return hashes
