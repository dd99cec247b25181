"""Recognize questions that ask for a formula or SQL."""

import re

from kosmos_rag.answering.units import Unit
from kosmos_rag.answering.words import words

_SQL = re.compile(r"\bselect\b.*\bfrom\b", re.IGNORECASE | re.DOTALL)
# Words that ask for a formula or for SQL, and name nothing that it is about. `computer` is a subject.
_CALCULATION = re.compile(
    r"\b(?:calculat\w*|comput(?:e[sd]?|ing|ations?)|formulas?|sql|query|queries|statements?)\b", re.IGNORECASE
)


def is_requested_sql(question: str, unit: Unit) -> bool:
    """Return whether a unit is SQL and the question asks for a formula or SQL."""
    return unit.kind == "code" and bool(_CALCULATION.search(question) and _SQL.search(unit.text))


def subject(question: str) -> str:
    """Return the question without words that ask for a formula or SQL.

    SQL seldom has the word "calculated", but shows how.
    """
    rest = " ".join(_CALCULATION.sub(" ", question).split())
    return rest if words(rest) else question
