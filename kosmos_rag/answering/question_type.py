"""Classify questions by the kind of answer, and score units by it."""

import re
from collections.abc import Callable

from kosmos_rag.answering.units import Unit
from kosmos_rag.answering.words import words

_SQL = re.compile(r"\bselect\b.*\bfrom\b", re.IGNORECASE | re.DOTALL)
_FORMULA = re.compile(r"\b(divided by|times|the sum of|share of|less|minus|plus|over all)\b|\S [*/=] \S", re.IGNORECASE)
_NUMBER = re.compile(
    r"\d|\b(none|zero|one|two|three|four|five|six|seven|eight|nine|ten|twelve|twice|half)\b", re.IGNORECASE
)
_TIME = re.compile(
    r"\d{1,2}:\d\d|\b\d+[ -](second|minute|hour|day|week|month|year)s?\b|"
    r"\b(daily|nightly|weekly|monthly|yearly|hourly|every|month|day|week|year|before|after|until|once)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<=[^.!?\s] )[A-Z][a-z]+")
_IDENTIFIER = re.compile(r"`[^`\n]+`|\w+_\w+")

# Words that ask for a formula or for SQL, and name nothing that it is about. `computer` is a subject.
_CALCULATION_WORDS = r"calculat\w*|comput(?:e[sd]?|ing|ations?)|formulas?"
_SQL_WORDS = r"sql|query|queries|statements?"

_CALCULATION = re.compile(rf"\b(?:{_CALCULATION_WORDS}|{_SQL_WORDS})\b", re.IGNORECASE)

_Fits = Callable[[Unit], float]


def _calculation(unit: Unit) -> float:
    if unit.kind == "code":
        return 1.0 if _SQL.search(unit.text) else 0.0
    return 0.5 if _FORMULA.search(unit.text) else 0.0


def _matches(pattern: re.Pattern[str]) -> _Fits:
    return lambda unit: 1.0 if pattern.search(unit.text) else 0.0


def _step(unit: Unit) -> float:
    return {"item": 1.0, "code": 0.5}.get(unit.kind, 0.0)


# The first matching rule decides.
_RULES: tuple[tuple[re.Pattern[str], _Fits], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), fits)
    for pattern, fits in (
        (rf"\b({_CALCULATION_WORDS}|{_SQL_WORDS})\b", _calculation),
        (r"\bwho(m|se)?\b|\bwhich (team|person|people)\b", _matches(_NAME)),
        (r"^when\b|\b(what|which) (time|day|date|hour)s?\b|\bhow (soon|often|long|old)\b", _matches(_TIME)),
        (r"\bhow (many|much|high|far|large)\b|\b(share|proportion|percentage|bounds)\b", _matches(_NUMBER)),
        (r"\b(which|what) .*\b(table|column|field|model|file|value)s?\b", _matches(_IDENTIFIER)),
        (r"\bwhat (do|should|must|can|now)\b|\bhow (do|can|should) (i|we)\b|\bwhere do i\b", _step),
    )
)


def fit(question: str) -> _Fits:
    """Return a scorer of units for the question's kind of answer.

    The score is 0 to 1.
    """
    for pattern, fits in _RULES:
        if pattern.search(question):
            return fits
    return _no_match


def subject(question: str) -> str:
    """Return the question without words that ask for a formula or SQL.

    SQL seldom has the word "calculated", but shows how.
    """
    rest = " ".join(_CALCULATION.sub(" ", question).split())
    return rest if words(rest) else question


def _no_match(_: Unit) -> float:
    return 0.0
