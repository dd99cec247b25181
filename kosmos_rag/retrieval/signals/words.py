"""Words as signals compare them: without case, endings and words that say nothing."""

import re
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_LETTERS = 6
"""Letters that tell one word from another: `calculated` and `calculation` are one."""
_EMPTY = frozenset(
    _WORD.findall(
        "a about an and any are as at be been but by can could did do does for from get had has have how i if in into "
        "is it its me my no not of on or our out should so such than that the their them then there these they this to "
        "up us was we were what when where which who whom whose why will with would you your"
    )
)


@lru_cache(maxsize=2000)
def words(text: str) -> frozenset[str]:
    """Return the distinct words of a text that carry meaning, each cut to its first letters.

    Truncation to a fixed length is the plainest of the stemmers in Frakes, "Stemming Algorithms" (1992).
    """
    return frozenset(word.rstrip("s")[:_LETTERS] for word in _WORD.findall(text.lower()) if word not in _EMPTY)
