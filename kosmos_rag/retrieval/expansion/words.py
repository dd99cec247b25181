"""Words as synonyms and wordings are compared by."""

import re
import unicodedata

# Marks of a name that tell it from another word: C++ and C# are not C, and .NET is not net.
_SIGNS = ".+#"
_WORD = re.compile(r"(?:(?<!\S)\.)?[^\s.+#]+(?:[+#]++(?![^\s.+#]))?")


def words(text: str) -> list[str]:
    """Return the words of a text in compatibility form (NFKC) and without case.

    A word is a run of letters, digits and combining marks. Hyphen, underscore, apostrophe and whatever else is
    neither separate words as white space does, save `+` and `#` at the end of a word and a dot that begins one.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _WORD.findall("".join(sign if _is_of_a_word(sign) else " " for sign in folded))


def _is_of_a_word(sign: str) -> bool:
    # \w of `re` leaves out combining marks, on which the vowels of many scripts are written.
    return sign.isalnum() or sign in _SIGNS or unicodedata.category(sign).startswith("M")
