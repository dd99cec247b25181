"""Entities of a question: quoted and known values, names, dates, numbers, comparisons."""

import re
from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Literal

from kosmos_rag.core.extras import require_extra
from kosmos_rag.engine.time_ranges import find_time_ranges, resolve_days
from kosmos_rag.text2sql.linking.known_values import ValueMatch
from kosmos_rag.text2sql.linking.words import QUOTED
from kosmos_rag.text2sql.records import Entities, NumberBound

Operator = Literal[">", ">=", "<", "<="]

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
_OPERATORS: dict[Operator, str] = {
    ">=": r"at least|no(?:t)? (?:less|fewer|lower|smaller) than",
    "<=": r"at most|no(?:t)? (?:more|greater|higher|larger) than|up to",
    ">": r"(?:more|greater|higher|larger|bigger) than|over|above|exceed(?:s|ed|ing)?",
    "<": r"(?:less|fewer|lower|smaller) than|under|below",
}
"""In this order: `no more than` has `more than`."""
_BOUNDS = {
    operator: re.compile(rf"\b(?:{words}) (?P<number>-?\d+(?:[.,]\d+)*)(?![\w-])", re.IGNORECASE)
    for operator, words in _OPERATORS.items()
}
_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _COMPARISONS.items()}
_COUNT = r"(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_WEEKDAY = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
# May is a verb as well: it is a month if it has a capital letter and is next to a number.
_MONTH = (
    r"(?:january|february|march|april|june|july|august|september|october|november|december"
    r"|(?-i:(?<=\d )May|May(?= \d)))"
)
_DAY_OF_MONTH = re.compile(r"(?<!\d)\d{1,2}(?!\d)")
_TIMES = re.compile(
    rf"\b(?:today|yesterday|tomorrow|(?:last|past|this|next|previous) (?:\d+ )?(?:day|week|month|quarter|year)s?"
    rf"|q[1-4](?:,? \d{{4}})?|{_COUNT} (?:minute|hour|day|week|month|year)s? ago"
    rf"|\d{{4}}-\d\d-\d\d|(?:last |next )?{_WEEKDAY}"
    rf"|(?:\d{{1,2}} )?{_MONTH}(?: \d{{1,2}}(?!\d))?(?:,? \d{{4}})?)\b",
    re.IGNORECASE,
)


def find_entities(
    question: str, *, values: Sequence[ValueMatch] = (), row_names: Sequence[str] = (), today: date
) -> Entities:
    """Extract the entities of a question.

    Args:
        values: Known values of columns that the question says.
        row_names: Names of rows that the schema's words reveal.
        today: Reference date of relative dates.
    """
    quoted = tuple(next(filter(None, match.groups())) for match in QUOTED.finditer(question))
    unquoted = QUOTED.sub(" ", question)
    time_texts = dict.fromkeys([*(match[0] for match in _TIMES.finditer(unquoted)), *_YEAR.findall(unquoted)])
    # A year within a date is part of that date.
    dates = [text for text in time_texts if not any(text != other and text in other for other in time_texts)]
    days = tuple((text, _parse_date(text, today)) for text in dates)
    without_dates = _TIMES.sub(lambda match: "_" * len(match[0]), unquoted)  # March is no name there, and 3 no number
    return Entities(
        quoted=quoted,
        values=tuple(match.value for match in values),
        misspelt=tuple((match.text, match.value) for match in values if not match.exact),
        names=tuple(dict.fromkeys([*_NAMES.findall(without_dates), *row_names])),
        dates=days,
        time_ranges=find_time_ranges(unquoted, sorted(days, key=lambda pair: unquoted.find(pair[0])), today),
        bounds=_find_bounds(without_dates),
        numbers=tuple(number for number in _NUMBER.findall(without_dates) if number not in dates),
        comparisons=tuple(name for name, pattern in _COMPILED.items() if pattern.search(unquoted)),
    )


def _find_bounds(text: str) -> tuple[NumberBound, ...]:
    """Return the numbers that a text compares with, in the order of the text."""
    bounds: dict[int, NumberBound] = {}
    for operator, pattern in _BOUNDS.items():
        for match in pattern.finditer(text):
            number = match["number"].replace(",", "")
            bounds.setdefault(match.start("number"), NumberBound(text=match[0], operator=operator, number=number))
    return tuple(bounds[start] for start in sorted(bounds))


def _parse_date(text: str, today: date) -> date | None:
    if resolve_days(text, today) is not None or (
        re.search(_MONTH, text, re.IGNORECASE) and not _DAY_OF_MONTH.search(text)
    ):
        return None
    require_extra("schema", "schema linking", "dateparser")
    import dateparser

    parsed = dateparser.parse(
        text, languages=["en"], settings={"RELATIVE_BASE": datetime.combine(today, time()), "PREFER_DATES_FROM": "past"}
    )
    return None if parsed is None else parsed.date()
