"""Detect the legacy encoding of a text by language models.

The words of the decoded text count too.
"""

import re
from functools import cache
from itertools import pairwise
from unicodedata import category, name

from kosmos_rag.parsing import bounds

_CERTAIN = 1.1
"""An encoding is certain where it scores so many times the next one that makes another text."""
_LEAST_SCORE = 0.05
"""Below it the models know nothing: a few signs in a short text. The most common encoding is the best guess then."""
_WORD = re.compile(r"[^\s\d!-/:-@\[-`{-~\u3000-\u303f]+")
_EAST = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "KATAKANA-HIRAGANA", "IDEOGRAPHIC", "HALFWIDTH", "FULLWIDTH", "BOPOMOFO"}
)
_WITH_SIGNS = frozenset({"east", "ARABIC", "HEBREW", "THAI"})
"""Scripts that have punctuation within words, or no spaces around it."""
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_LETTERS = re.compile(r"[A-Za-z]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_EAST_IN_LATIN = re.compile(r"[a-z][^\x00-\x7f]{1,2}[a-z]")
"""Two Western letters within a word, read as one character of East Asia."""
_WESTERN = "cp1252"
_PRIOR = 2.0


def detect_legacy(sample: bytes) -> tuple[str, bool]:
    """Return the most likely encoding of a sample.

    The second value is whether it is certain. The models rank by pairs of letters, which are few in a short text;
    there, the words decide: a word is of one script, has no capital after a small letter, and no sign between letters.
    """
    import chardet

    candidates = chardet.detect_all(sample, ignore_threshold=True, compat_names=False)
    scores: dict[str, tuple[float, str]] = {}
    best = 0.0
    for candidate in candidates[: bounds.MAX_LEGACY_ENCODINGS]:
        encoding = candidate["encoding"]
        text = _try_decode(sample, encoding)
        if encoding is None or text is None or (encoding != _WESTERN and candidate["confidence"] < best / _CERTAIN):
            continue
        score = candidate["confidence"] * _share_of_words(text) * _prior(encoding, text)
        best = max(best, score)
        if text not in scores or scores[text][0] < score:
            scores[text] = score, encoding
    western = _try_decode(sample, _WESTERN)
    if not scores or (best < _LEAST_SCORE and western is not None):
        return _WESTERN, False
    (_, chosen), *others = sorted(scores.values(), reverse=True)
    return chosen, not others or best > _CERTAIN * others[0][0]


def _try_decode(sample: bytes, encoding: str | None) -> str | None:
    try:
        return sample.decode(encoding or "")
    except (LookupError, UnicodeDecodeError):
        return None


def _prior(encoding: str, text: str) -> float:
    """Return the prior weight of an encoding.

    A text with few letters beyond ASCII is mostly in cp1252.
    """
    if encoding != _WESTERN:
        return 1.0
    letters, other_characters = len(_LETTERS.findall(text)), len(_NOT_ASCII.findall(text))
    return 1.0 + _PRIOR * letters / (letters + other_characters) / max(1, other_characters)


def _share_of_words(text: str) -> float:
    """Return the share of plausible words among those beyond ASCII.

    1 if there are none.
    """
    sample = _WORD.findall(text[: bounds.LEGACY_SAMPLE_CHARS])
    words = [_EDGES.sub("", word) for word in sample if not word.isascii()][: bounds.MAX_LEGACY_WORDS]
    if not words:
        return 1.0
    return (sum(map(_is_word, words)) + 0.5) / (len(words) + 0.5)


def _is_word(word: str) -> bool:
    scripts = {_script(character) for character in word if not character.isascii()} - {"accent"}
    if scripts - {"sign", "east"} and _LETTERS.search(word):
        scripts.add("LATIN")  # East Asian texts have names in ASCII without a space around them
    if "other" in scripts or len(scripts - {"sign"}) > 1 or ("sign" in scripts and not scripts & _WITH_SIGNS):
        return False
    if "east" in scripts and _EAST_IN_LATIN.search(word):
        return False
    return not any(before.islower() and after.isupper() for before, after in pairwise(word))


@cache
def _script(character: str) -> str:
    """Return the script of a letter by its Unicode name.

    `east` for those of East Asia; empty for other characters.
    """
    kind, script = category(character)[0], name(character, "").split(" ")[0]
    if character in "·\u2019ªºµ":  # within words of Catalan, French and Italian; `µm`
        return "LATIN"
    if kind == "P":
        return "sign"
    if kind not in "LM":
        return "other"
    if script == "COMBINING":
        return "accent"
    return "east" if script in _EAST else script
