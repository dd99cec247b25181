"""Ranges of days in a question, in English and German.

`last week`, `Q3 2025`, `since March`, `vor drei Tagen`. The words are in time_words.yaml.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from kosmos_rag.core.types.serialize import Serializable

_WORDS: Mapping[str, Any] = yaml.safe_load(files(__package__).joinpath("time_words.yaml").read_text(encoding="utf-8"))
_MONTHS_PER_UNIT = {"month": 1, "quarter": 3, "year": 12}
_MAX_UNITS = 10_000
"""Units of a rolling range; a larger number is no time."""
_LONGEST_BEFORE = 80
"""Characters before a time that may belong to it."""

Days = tuple[date, date]
"""The first day, and the day after the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeRange(Serializable):
    """A range of days; a side that is None is open."""

    text: str
    """As the question has it."""
    start: date | None
    """The first day."""
    end: date | None
    """The day after the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Time:
    """One time in a text, without the words before it."""

    text: str
    span: tuple[int, int]
    days: Days | None
    """None for what is beyond the calendar."""

    @property
    def day(self) -> date | None:
        """The day, if it is a single one."""
        if self.days is None or self.days[1] - self.days[0] != timedelta(days=1):
            return None
        return self.days[0]


def _by_word(name: str) -> dict[str, Any]:
    """Return the meaning of each word of a list of time_words.yaml."""
    return {word: meaning for meaning, words in _WORDS[name].items() for word in words}


def _any(words: Any) -> str:
    return "(?:" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"


_MONTHS, _WEEKDAYS, _UNITS = _by_word("months"), _by_word("weekdays"), _by_word("units")
_DAYS, _DIRECTIONS = _by_word("days"), _by_word("directions")
_NUMBERS, _ORDINALS, _BOUNDS = _by_word("numbers"), _by_word("ordinals"), _by_word("bounds")
_OPPOSITES = {"after": "until", "before": "since"}
_BOUNDS |= {
    f"{negation} {word}": _OPPOSITES[side]
    for word, side in _BOUNDS.items()
    if side in _OPPOSITES
    for negation in _WORDS["negations"]
}
_AMBIGUOUS, _JOINS, _CONJUNCTIONS = (frozenset(_WORDS[key]) for key in ("ambiguous_months", "joins", "conjunctions"))
_YEAR = r"(?:1[5-9]|20)\d\d"
TIME_CUE = re.compile(rf"\d|\b{_any({*_MONTHS, *_WEEKDAYS, *_UNITS, *_DAYS})}\b", re.IGNORECASE)
"""What every time has at least one of: one look at a question instead of one by each pattern."""
_COUNT = rf"(?P<count>\d+|{_any(_NUMBERS)})"
_UNIT, _DIRECTION = rf"(?P<unit>{_any(_UNITS)})", rf"(?P<direction>{_any(_DIRECTIONS)})"
_FILLER = rf"(?:\s+{_any(_WORDS['fillers'])})*"
_FINAL_YEAR = re.compile(rf"{_YEAR}$")
_SIGN = _any(_WORDS["currency_signs"])
_BEFORE_AMOUNT = re.compile(rf"(?:\b{_any(_WORDS['amounts'])}\s+|(?<!in )(?<!\. ){_SIGN}\s*)$", re.IGNORECASE)
"""Not the sign of a column: in $ 2024, in Mio. € 2024."""
_AFTER_AMOUNT = re.compile(
    rf"(?:\s*{_any(_JOINS)}\s*\d{{4}})?\s*"
    rf"(?:{_SIGN}|{_any(_WORDS['measures'])}(?![\w&/-])|(?P<counted>{_any(_WORDS['counted'])})(?!\w))",
    re.IGNORECASE,
)
"""The measure of a number, or of the second one: between 1500 and 2000 euros."""
_BEFORE_YEAR = re.compile(rf"\b{_any(_WORDS['before_years'])}\s+(?:{_YEAR}\s+{_any(_JOINS)}\s+)?$", re.IGNORECASE)
"""Also before the second year: from 2019 to 2024."""
_BOUND = re.compile(rf"\b({_any(_BOUNDS)}){_FILLER}\s*$", re.IGNORECASE)
_BEFORE_MONTH = re.compile(rf"\b{_any({*_BOUNDS, *_JOINS, *_WORDS['fillers']})}\s+$", re.IGNORECASE)


def find_times(text: str, today: date) -> list[Time]:
    """Return the times of a text in its order.

    Args:
        text: A question.
        today: Reference date of relative times.
    """
    candidates = [
        Time(text=match[0], span=match.span(), days=_resolve(resolve, match, today))
        for pattern, resolve in _PATTERNS
        for match in pattern.finditer(text)
        if not _is_other_word(match, text)
    ]
    times: list[Time] = []
    for time in sorted(candidates, key=lambda item: (item.span[0], -item.span[1])):
        if not times or time.span[0] >= times[-1].span[1]:
            times.append(time)
    return times


def _resolve(resolve: Callable[[re.Match[str], date], Days | None], match: re.Match[str], today: date) -> Days | None:
    try:
        return resolve(match, today)
    except (OverflowError, ValueError):  # beyond the calendar
        return None


def _is_other_word(match: re.Match[str], text: str) -> bool:
    """Return whether a month is another word, `may`, or a year an amount, `2000 euros`."""
    if _FINAL_YEAR.fullmatch(match[0]):
        before, measure = _read_before(text, match.start()), _AFTER_AMOUNT.match(text, match.end())
        is_measured = measure is not None and not (measure["counted"] and _BEFORE_YEAR.search(before))
        return is_measured or _BEFORE_AMOUNT.search(before) is not None
    word = match.groupdict().get("month")
    if word is None or match[0] != word or word.lower() not in _AMBIGUOUS:
        return False
    return not (word[0].isupper() and _BEFORE_MONTH.search(_read_before(text, match.start())))


def _read_before(text: str, start: int) -> str:
    """Return the characters before a time that may belong to it."""
    # To read all of a long text for each of its times would take seconds.
    return text[max(0, start - _LONGEST_BEFORE) : start]


@lru_cache(maxsize=1_000)
def find_time_ranges(text: str, today: date) -> tuple[TimeRange, ...]:
    """Return the ranges that the times of a text mean.

    A word before a time opens a side: `since March` has no end. `last week` is the calendar week before this one,
    Monday to Sunday; `past week` and `last 7 days` are seven days that end today. A month or quarter without a year is
    the last one that has begun.

    Args:
        text: A question.
        today: Reference date of relative times.
    """
    ranges: list[TimeRange] = []
    last: Time | None = None
    for time in find_times(text, today):
        if time.days is None:
            continue
        join = " ".join(text[last.span[1] : time.span[0]].lower().split()) if last else ""
        bound = _bound(text, last) if last else ""
        if last and ranges and join in _JOINS and (bound or join not in _CONJUNCTIONS):
            ranges[-1] = _join(ranges[-1], last, join, time, today)
        else:
            ranges.append(_open_side(time, time.days, _bound(text, time)))
        last = time
    return tuple(ranges)


def _bound(text: str, time: Time) -> str:
    match = _BOUND.search(_read_before(text, time.span[0]))
    return match[1].lower() if match else ""


def _join(opened: TimeRange, first: Time, join: str, last: Time, today: date) -> TimeRange:
    assert first.days is not None, "compared by the caller"
    assert last.days is not None, "compared by the caller"
    start = first.days[0]
    if (year := _FINAL_YEAR.search(last.text)) and not _FINAL_YEAR.search(first.text):
        dated = find_times(f"{first.text} {year[0]}", today)  # between March and May 2025
        start = dated[0].days[0] if len(dated) == 1 and dated[0].days else start
    return TimeRange(text=f"{opened.text} {join} {last.text}", start=start, end=last.days[1])


def _open_side(time: Time, days: Days, bound: str) -> TimeRange:
    start, end = days
    text = f"{bound} {time.text}" if bound else time.text
    match _BOUNDS.get(bound):
        case "since" | "between":
            return TimeRange(text=text, start=start, end=None)
        case "after":
            return TimeRange(text=text, start=end, end=None)
        case "before":
            return TimeRange(text=text, start=None, end=start)
        case "until":
            return TimeRange(text=text, start=None, end=end)
    return TimeRange(text=text, start=start, end=end)


def _resolve_date(match: re.Match[str], _today: date) -> Days | None:
    return _day(int(match["year"]), int(match["number"]), int(match["day"]))


def _day(year: int, month: int, day: int) -> Days:
    start = date(year, month, day)
    return start, start + timedelta(days=1)


def _resolve_relative(match: re.Match[str], today: date) -> Days | None:
    direction, unit = _DIRECTIONS[match["direction"].lower()], _UNITS[match["unit"].lower()]
    if match["count"] is None and direction != "past":
        return _calendar_days({"this": 0, "next": 1}.get(direction, -1), unit, today)
    units = _number(match["count"] or "1")
    if not 0 < units < _MAX_UNITS:
        return None
    tomorrow = today + timedelta(days=1)
    if direction == "next":
        return tomorrow, _shift(tomorrow, units, unit)
    return _shift(tomorrow, -units, unit), tomorrow


def _resolve_ago(match: re.Match[str], today: date) -> Days | None:
    units = _number(match["count"])
    if not 0 <= units < _MAX_UNITS:
        return None
    start = _shift(today, -units, _UNITS[match["unit"].lower()])
    return start, start + timedelta(days=1)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else int(_NUMBERS[text.lower()])


def _resolve_day_word(match: re.Match[str], today: date) -> Days:
    start = today + timedelta(days=int(_DAYS[match[0].lower()]))
    return start, start + timedelta(days=1)


def _resolve_weekday(match: re.Match[str], today: date) -> Days:
    weekday = int(_WEEKDAYS[match["weekday"].lower()])
    direction = _DIRECTIONS.get((match["direction"] or "").lower())
    distance = (
        (weekday - today.weekday() - 1) % 7 + 1 if direction == "next" else -((today.weekday() - weekday) % 7 or 7)
    )
    start = today + timedelta(days=distance)
    return start, start + timedelta(days=1)


def _resolve_quarter(match: re.Match[str], today: date) -> Days | None:
    groups = match.groupdict()
    quarter = int(groups["quarter"]) if groups.get("quarter") else int(_ORDINALS[groups["ordinal"].lower()])
    return _months(groups["year"], quarter * 3 - 2, 3, today)


def _resolve_month(match: re.Match[str], today: date) -> Days | None:
    month, day = int(_MONTHS[match["month"].lower()]), match["before"] or match["after"]
    if day is None:
        return _months(match["year"], month, 1, today)
    year = int(match["year"]) if match["year"] else today.year
    days = _day(year, month, int(day))
    if match["year"] is None and days[0] > today:
        return _day(year - 1, month, int(day))
    return days


def _resolve_year(match: re.Match[str], today: date) -> Days | None:
    return _months(match[0], 1, 12, today)


def _calendar_days(offset: int, unit: str, today: date) -> Days:
    """Return the calendar unit that is so many units after today's."""
    start = today
    if unit == "week":
        start = today - timedelta(days=today.weekday())
    elif unit in _MONTHS_PER_UNIT:
        months = _MONTHS_PER_UNIT[unit]
        start = date(today.year, (today.month - 1) // months * months + 1, 1)
    return _shift(start, offset, unit), _shift(start, offset + 1, unit)


def _shift(day: date, count: int, unit: str) -> date:
    """Return the day so many units later, at most the month's last."""
    if unit not in _MONTHS_PER_UNIT:
        return day + timedelta(days=count * {"week": 7, "day": 1}.get(unit, 0))
    months = day.year * 12 + day.month - 1 + count * _MONTHS_PER_UNIT[unit]
    first = date(months // 12, months % 12 + 1, 1)
    last = _first_of_next_month(first) - timedelta(days=1)
    return first.replace(day=min(day.day, last.day))


def _first_of_next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _months(year: str | None, month: int, count: int, today: date) -> Days | None:
    number = int(year) if year else today.year - (month > today.month)
    if not 1 <= number < date.max.year:
        return None
    start = date(number, month, 1)
    return start, _shift(start, count, "month")


def _patterns() -> Iterator[tuple[re.Pattern[str], Callable[[re.Match[str], date], Days | None]]]:
    suffix, year = r"(?:st|nd|rd|th|\.)?", rf"(?:,? (?:of |des jahres )?(?P<year>{_YEAR}))?"
    quarter = _any(word for word, unit in _UNITS.items() if unit == "quarter")
    days = _any(word for word, unit in _UNITS.items() if unit not in ("minute", "hour"))
    month = (
        rf"(?:(?P<before>\d{{1,2}}){suffix} (?:of )?)?(?P<month>{_any(_MONTHS)})"
        rf"(?: (?P<after>\d{{1,2}}){suffix}(?!\d))?{year}"
    )
    for pattern, resolve in (
        (r"(?P<year>\d{4})-(?P<number>\d\d)-(?P<day>\d\d)", _resolve_date),
        (r"(?P<day>\d{1,2})\.(?P<number>\d{1,2})\.(?P<year>\d{4})", _resolve_date),
        (rf"{_DIRECTION} (?:{_COUNT} )?(?P<unit>{days})", _resolve_relative),
        (rf"{_COUNT} {_UNIT} {_any(_WORDS['ago'])}", _resolve_ago),
        (rf"{_any(_WORDS['before_ago'])} {_COUNT} {_UNIT}", _resolve_ago),
        (_any(_DAYS), _resolve_day_word),
        (rf"(?:{_DIRECTION} )?(?P<weekday>{_any(_WEEKDAYS)})", _resolve_weekday),
        (rf"Q(?P<quarter>[1-4]){year}", _resolve_quarter),
        (rf"(?P<year>{_YEAR}) Q(?P<quarter>[1-4])", _resolve_quarter),
        (rf"(?P<ordinal>{_any(_ORDINALS)}) {quarter}{year}", _resolve_quarter),
        (rf"(?P<quarter>[1-4])\. {quarter}{year}", _resolve_quarter),
        (month, _resolve_month),
        (_YEAR, _resolve_year),
    ):
        yield re.compile(rf"(?<![\w.-])(?<!\d:){pattern}(?![\w-]|[.]\d)", re.IGNORECASE), resolve


_PATTERNS = tuple(_patterns())
