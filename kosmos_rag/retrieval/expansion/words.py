"""Normalised words: the comparison of synonyms and rewritten questions.

A tokenizer without stop words and without a stemmer: `The Who` and `who` are different terms of a synonym file.
"""

import re
import unicodedata

# Characters of names that distinguish them from words: C++ and C# are not C, and .NET is not net.
_SIGNS = ".+#"
_WORD = re.compile(r"(?:(?<!\S)\.)?[^\s.+#]+(?:[+#]++(?![^\s.+#]))?")


def normalize_words(text: str) -> list[str]:
    """Return the words of a text, NFKC and case-folded, in order.

    A word is a run of letters, digits and combining marks, with `+` and `#` at its end and a dot at its start. All
    other characters separate words, such as hyphens, underscores and apostrophes.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _WORD.findall("".join(sign if _is_word_character(sign) else " " for sign in folded))


def _is_word_character(sign: str) -> bool:
    # \w of `re` leaves out combining marks, on which the vowels of many scripts are written.
    return sign.isalnum() or sign in _SIGNS or unicodedata.category(sign).startswith("M")
