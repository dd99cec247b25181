"""Ranges of days in a question: `last week`, `Q3 2025`, `since March`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from kosmos_rag.core.types.serialize import Serializable

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTHS_PER_UNIT = {"month": 1, "quarter": 3, "year": 12}
_RELATIVE = re.compile(r"(last|past|this|next|previous) (?:(\d+) )?(day|week|month|quarter|year)s?", re.IGNORECASE)
_QUARTER = re.compile(r"q([1-4])(?:,? (\d{4}))?", re.IGNORECASE)
_MONTH = re.compile(rf"({'|'.join(_MONTHS)})(?:,? (\d{{4}}))?", re.IGNORECASE)
_YEAR = re.compile(r"\d{4}")
_FINAL_YEAR = re.compile(r"\d{4}$")
_BOUND = re.compile(r"\b(since|from|starting|after|before|until|till|between)(?: the)?\s*$", re.IGNORECASE)
_MAX_UNITS = 10_000
"""Units of a rolling range; a larger number is no time."""

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


def find_time_ranges(question: str, times: Sequence[tuple[str, date | None]], today: date) -> tuple[TimeRange, ...]:
    """Return the ranges that the times of a question mean.

    A word before a time opens a side: `since March` has no end. `last week` is the calendar week before this one,
    Monday to Sunday; `past week` and `last 7 days` are seven days that end today.

    Args:
        times: Texts of times, each with its day if it is one day.
        today: Reference date of relative times.
    """
    ranges: list[TimeRange] = []
    end_of_last = 0
    last_text = ""
    for text, day in times:
        days = (day, day + timedelta(days=1)) if day is not None else resolve_days(text, today)
        at = question.find(text, end_of_last)
        if days is None or at < 0:
            continue
        between = question[end_of_last:at].strip().lower()
        opened = ranges and question[:end_of_last].lower().endswith(ranges[-1].text.lower())
        if opened and ranges[-1].end is None and between in ("and", "to", "until", "till", "through"):
            first = ranges.pop()
            if (year := _FINAL_YEAR.search(text)) and (same_year := resolve_days(f"{last_text} {year[0]}", today)):
                first = replace(first, start=same_year[0])  # between March and May 2025
            ranges.append(TimeRange(text=f"{first.text} {between} {text}", start=first.start, end=days[1]))
        else:
            bound = _BOUND.search(question[:at])
            ranges.append(_open_side(text, days, bound[1].lower() if bound else ""))
        end_of_last, last_text = at + len(text), text
    return tuple(ranges)


def _open_side(text: str, days: Days, bound: str) -> TimeRange:
    start, end = days
    if bound in ("since", "from", "starting", "between"):
        return TimeRange(text=f"{bound} {text}", start=start, end=None)
    if bound == "after":
        return TimeRange(text=f"{bound} {text}", start=end, end=None)
    if bound == "before":
        return TimeRange(text=f"{bound} {text}", start=None, end=start)
    if bound in ("until", "till"):
        return TimeRange(text=f"{bound} {text}", start=None, end=end)
    return TimeRange(text=text, start=start, end=end)


def resolve_days(text: str, today: date) -> Days | None:
    """Return the days of a relative time, quarter, month or year.

    A month or quarter without a year is the last one that has begun. The result is None for other texts.

    Args:
        text: The time, as `last week`.
        today: Reference date.
    """
    if match := _RELATIVE.fullmatch(text):
        return _relative_days(match[1].lower(), match[2], match[3].lower(), today)
    if match := _QUARTER.fullmatch(text):
        return _months(match[2], int(match[1]) * 3 - 2, 3, today)
    if match := _MONTH.fullmatch(text):
        return _months(match[2], _MONTHS.index(match[1].lower()) + 1, 1, today)
    if _YEAR.fullmatch(text):
        return _months(text, 1, 12, today)
    return None


def _relative_days(direction: str, count: str | None, unit: str, today: date) -> Days | None:
    if count is None and direction != "past":
        return _calendar_days({"this": 0, "next": 1}.get(direction, -1), unit, today)
    units = int(count or 1)
    if not 0 < units < _MAX_UNITS:
        return None
    tomorrow = today + timedelta(days=1)
    try:
        return (
            (tomorrow, _shift(tomorrow, units, unit))
            if direction == "next"
            else (_shift(tomorrow, -units, unit), tomorrow)
        )
    except (OverflowError, ValueError):  # beyond the calendar
        return None


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
        return day + timedelta(days=count * (7 if unit == "week" else 1))
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
