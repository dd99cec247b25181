"""Near-duplicates: passages that say the same words, and would only take the budget of others."""

import re

_WORD = re.compile(r"\w+")
_SHINGLE = 3


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return the text's runs of three words, case folded; a shorter text is one run."""
    words = _WORD.findall(text.casefold())
    if len(words) <= _SHINGLE:
        return frozenset([tuple(words)])
    return frozenset(tuple(words[i : i + _SHINGLE]) for i in range(len(words) - _SHINGLE + 1))


def resemblance(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """Return the share of runs that two texts have in common, 0 to 1.

    Source: Broder, "On the resemblance and containment of documents" (1997).
    """
    return len(one & other) / len(one | other)
