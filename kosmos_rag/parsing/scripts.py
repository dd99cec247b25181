"""Write superscripts and subscripts in one line: `10^6`, `H_2O`, `x^(n+1)`."""

import re

_MARKS = {
    "sup": "^",
    "super": "^",
    "superscript": "^",
    "sub": "_",
    "subscript": "_",
}
"""By the names of HTML, of OpenDocument and of Word."""
KINDS = frozenset(_MARKS)
_LONGEST = 24
_SIMPLE = re.compile(r"[-+\u2212]?\w{0,12}")
_TERM = r"\w+(?:\.\d+)?"
_FORMULA = re.compile(rf"[-+\u2212]?{_TERM}(?: ?[-+\u2212*/\u00b7,=] ?{_TERM})*[-+\u2212]*")
_ORDINAL = re.compile(r"st|nd|rd|th|er|re|e|ème|o|a|tm|sm|mc", re.IGNORECASE)
"""Superscripts that belong to a word: `1st`, `XYZtm`."""


def write_script(kind: str, text: str) -> str:
    """Return a superscript or subscript with its mark.

    The result is empty for an ordinal (`1st`), and for what is no number, word or formula: these are written as they
    are.
    """
    words = text.strip()
    mark = _MARKS.get(kind, "")
    if not mark or not words or len(words) > _LONGEST or _ORDINAL.fullmatch(words):
        return ""
    if _SIMPLE.fullmatch(words):
        return mark + words
    return f"{mark}({words})" if _FORMULA.fullmatch(words) and not words.isalnum() else ""


def mark_script(parts: list[str], start: int, kind: str) -> None:
    """Mark the parts of a text from `start` on, which programs divide.

    Args:
        parts: the text.
        start: index of the first part of the superscript or subscript.
        kind: empty for other texts.
    """
    if kind and (marked := write_script(kind, "".join(parts[start:]))):
        parts[start:] = [marked]
