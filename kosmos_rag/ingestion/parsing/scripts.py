"""Write superscripts and subscripts in one line: `10^6`, `H_2O`."""

import re

MARKS = {"sup": "^", "superscript": "^", "sub": "_", "subscript": "_"}
"""By the names of HTML and of Office."""
_SCRIPT = re.compile(r"[-+\u2212]?\w{0,12}")
_ORDINAL = re.compile(r"st|nd|rd|th|er|re|e|ème|o|a|tm|sm|mc", re.IGNORECASE)
"""Superscripts that belong to a word: `1st`, `XYZtm`."""


def script_mark(kind: str, text: str) -> str:
    """Return what to write before a superscript or subscript.

    Nothing before an ordinal (`1st`), and before what is no plain number or word.
    """
    return MARKS.get(kind, "") if text and _SCRIPT.fullmatch(text) and not _ORDINAL.fullmatch(text) else ""
