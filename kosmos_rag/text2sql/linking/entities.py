"""What a question names beside tables and columns: quoted and known values, dates, numbers and comparisons."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, time

from kosmos_rag.text2sql.linking.words import QUOTED

_NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:[.,]\d+)*(?![\w-])")
_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d\d(?!\d)")
_NAMES = re.compile(r"(?<!^)(?<![.?!:] )\b[A-Z]\w+(?: [A-Z]\w+)*")
_COMPARISONS = {
    ">": (
        r"\b(?:at least|no (?:less|fewer) than"
        r"|(?<!no )(?:more|greater|higher|larger|older|longer|later|over|above|exceed\w*|after|since))\b"
    ),
    "<": (
        r"\b(?:at most|no more than|up to"
        r"|(?<!no )(?:less|fewer|lower|smaller|younger|shorter|earlier|under|below|before))\b"
    ),
    "between": r"\bbetween\b",
    "max": r"\b(?<!at )(?:most|highest|largest|maximum|oldest|longest|latest|newest|biggest|greatest|tallest|top)\b",
    "min": r"\b(?<!at )(?:least|fewest|lowest|smallest|minimum|youngest|shortest|earliest|cheapest|bottom)\b",
    "average": r"\b(?:average|mean)\b",
    "sum": r"\b(?:total|sum|altogether)\b",
    "count": r"\b(?:how many|number of|count)\b",
}
_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _COMPARISONS.items()}
_COUNT = r"(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_WEEKDAY = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
# May is a verb as well: it is a month where it has a capital letter and a number beside it.
_MONTH = (
    r"(?:january|february|march|april|june|july|august|september|october|november|december"
    r"|(?-i:(?<=\d )May|May(?= \d)))"
)
_DAY_OF_MONTH = re.compile(r"(?<!\d)\d{1,2}(?!\d)")
_TIMES = re.compile(
    rf"\b(?:today|yesterday|tomorrow|(?:last|past|this|next|previous) (?:\d+ )?(?:day|week|month|quarter|year)s?"
    rf"|{_COUNT} (?:minute|hour|day|week|month|year)s? ago|\d{{4}}-\d\d-\d\d|(?:last |next )?{_WEEKDAY}"
    rf"|(?:\d{{1,2}} )?{_MONTH}(?: \d{{1,2}}(?!\d))?(?:,? \d{{4}})?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entities:
    """What a question names."""

    quoted: tuple[str, ...]
    values: tuple[str, ...]
    """Values that some column is known to hold, in the question's order."""
    names: tuple[str, ...]
    """Words with a capital letter within a sentence: names, as a rule."""
    dates: tuple[tuple[str, date | None], ...]
    """As written, and the day that it means; None where it is none, or where dateparser does not read it."""
    numbers: tuple[str, ...]
    comparisons: tuple[str, ...]
    """Of `>`, `<`, `between`, `max`, `min`, `average`, `sum`, `count`."""


def find_entities(question: str, *, known: Collection[str] = (), today: date) -> Entities:
    """Find what a question names. `known` are values in lower case; relative dates count from `today`."""
    quoted = tuple(next(filter(None, found.groups())) for found in QUOTED.finditer(question))
    plain = QUOTED.sub(" ", question)
    written = dict.fromkeys([*(found[0] for found in _TIMES.finditer(plain)), *_YEAR.findall(plain)])
    # A year that stands within a date is that date.
    moments = [text for text in written if not any(text != other and text in other for other in written)]
    undated = _TIMES.sub(lambda moment: "_" * len(moment[0]), plain)  # March is no name there, and 3 no number
    return Entities(
        quoted=quoted,
        values=_known(question, known),
        names=tuple(dict.fromkeys(_NAMES.findall(undated))),
        dates=tuple((text, _day(text, today)) for text in moments),
        numbers=tuple(number for number in _NUMBER.findall(undated) if number not in moments),
        comparisons=tuple(name for name, pattern in _COMPILED.items() if pattern.search(plain)),
    )


def _known(question: str, known: Collection[str]) -> tuple[str, ...]:
    """Return known values that the question says, of one to four words."""
    words = re.findall(r"\w[\w'-]*", question.lower())
    spans = (" ".join(words[at : at + size]) for size in (4, 3, 2, 1) for at in range(len(words) - size + 1))
    return tuple(dict.fromkeys(span for span in spans if span in known))


def _day(text: str, today: date) -> date | None:
    if _YEAR.fullmatch(text) or (re.search(_MONTH, text, re.IGNORECASE) and not _DAY_OF_MONTH.search(text)):
        return None
    import dateparser

    found = dateparser.parse(
        text, languages=["en"], settings={"RELATIVE_BASE": datetime.combine(today, time()), "PREFER_DATES_FROM": "past"}
    )
    return None if found is None else found.date()
