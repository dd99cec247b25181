"""Parse iCalendar and vCard: each event or person is a section, each property a line."""

import quopri
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.text.decode import decode

_LINE = re.compile(r"(?:[\w-]+\.)?(?P<name>[\w-]+)(?P<parameters>(?:;(?:[^\":;]|\"[^\"]*\")*)*):(?P<value>.*)")
_COMMON_NAME = re.compile(r";CN=(?:\"(?P<quoted>[^\"]*)\"|(?P<plain>[^;:]*))", re.IGNORECASE)
_TYPE = re.compile(r";TYPE=\"?(?P<type>[^;:\"]*)|;(?P<plain>CELL|FAX|HOME|WORK)\b", re.IGNORECASE)
_QUOTED_PRINTABLE = re.compile(r";(?:ENCODING=)?QUOTED-PRINTABLE\b", re.IGNORECASE)
_CHARSET = re.compile(r";CHARSET=\"?([\w-]+)", re.IGNORECASE)
_DURATION = re.compile(r"([-+]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:\d+S)?)?")
_REPLY = re.compile(r";PARTSTAT=\"?(ACCEPTED|DECLINED|TENTATIVE|DELEGATED)\b", re.IGNORECASE)
_PERIODS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year", "HOURLY": "hour"}
_ESCAPE = re.compile(r"\\([nN,;\\])")
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_LABELS = {
    "DTSTART": "Start",
    "DTEND": "End",
    "DUE": "Due",
    "DURATION": "Duration",
    "RRULE": "Repeats",
    "RDATE": "Also on",
    "EXDATE": "Not on",
    "PRIORITY": "Priority",
    "PERCENT-COMPLETE": "Percent done",
    "LOCATION": "Location",
    "ORGANIZER": "Organizer",
    "ATTENDEE": "Attendee",
    "STATUS": "Status",
    "URL": "URL",
    "CATEGORIES": "Categories",
    "DESCRIPTION": "Description",
    "COMMENT": "Comment",
    "COMPLETED": "Completed",
    "FN": "Name",
    "NICKNAME": "Nickname",
    "ORG": "Organization",
    "TITLE": "Title",
    "ROLE": "Role",
    "TEL": "Phone",
    "EMAIL": "Email",
    "ADR": "Address",
    "BDAY": "Birthday",
    "NOTE": "Note",
    "ANNIVERSARY": "Anniversary",
}
"""What people read, by property; others are for programs."""
_TITLES = ("SUMMARY", "FN", "N", "ORG")
_KINDS = {"VEVENT": "Event", "VTODO": "Task", "VJOURNAL": "Journal", "VCARD": "Contact"}
"""Titles of sections without one of their own."""


class _Property(NamedTuple):
    name: str
    parameters: str
    value: str


def parse_calendar(data: bytes, limits: OutputLimits, *, media_type: str) -> ParsedDocument:
    """Parse a calendar or address book.

    Args:
        data: iCalendar or vCard.
        media_type: which of the two it is.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    composition = Composition(limits)
    opened: dict[str, None] = {}
    section: list[_Property] = []
    for entry in _read_properties(decode(data)):
        kind = entry.value.upper()
        if entry.name == "BEGIN":
            opened.pop(kind, None)
            opened[kind] = None
            section = [] if kind in _KINDS else section
        elif entry.name == "END" and kind in opened:
            if kind in _KINDS:
                _add_section(composition, section, _KINDS[kind])
            while opened.popitem()[0] != kind:
                pass
        elif next(reversed(opened), None) in _KINDS:  # not those of an alarm in an event
            section.append(entry)
    return composition.build(media_type, None)


def _read_properties(text: str) -> Iterator[_Property]:
    for line in _unfold(text):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        parameters, value = match["parameters"], match["value"].strip()
        if _QUOTED_PRINTABLE.search(parameters):
            value = _decode_quoted(value, parameters)
        yield _Property(match["name"].upper(), parameters, value)


def _unfold(text: str) -> Iterator[str]:
    """Yield the lines of properties, each joined from the lines that it takes in the file."""
    parts: list[str] = []
    is_quoted = False
    for line in text.split("\n"):
        if is_quoted and parts[-1].endswith("="):
            # RFC 2045, section 6.7: the white space after such a line end is text.
            parts[-1] = parts[-1][:-1]
            parts.append(line)
        elif parts and line.startswith((" ", "\t")):  # RFC 5545, section 3.1, and RFC 6350, section 3.2
            parts.append(line[1:])
        else:
            yield "".join(parts)
            parts = [line]
            is_quoted = _QUOTED_PRINTABLE.search(line.partition(":")[0]) is not None
    yield "".join(parts)


def _decode_quoted(value: str, parameters: str) -> str:
    """Return a value of vCard 2.1 that was quoted-printable."""
    charset = _CHARSET.search(parameters)
    data = quopri.decodestring(value.encode())
    try:
        return data.decode(charset[1] if charset else "utf-8", "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def _add_section(composition: Composition, entries: list[_Property], kind: str) -> None:
    titles = {entry.name: _read_value(entry) for entry in reversed(entries) if entry.name in _TITLES}
    composition.add_heading(1, next((title for name in _TITLES if (title := titles.get(name))), kind))
    composition.add_block("\n".join(_lines(entries)))


def _lines(entries: list[_Property]) -> Iterator[str]:
    starts = {entry.value for entry in entries if entry.name == "DTSTART"}
    for entry in entries:
        if entry.name == "DTEND" and entry.value in starts:
            continue
        label = _LABELS.get(entry.name)
        value = _read_value(entry)
        if label and value:
            kind = _TYPE.search(entry.parameters) if entry.name in ("TEL", "EMAIL", "ADR") else None
            words = (kind["type"] or kind["plain"] or "").lower() if kind else ""
            yield f"{label} ({words}): {value}" if words else f"{label}: {value}"


def _read_value(entry: _Property) -> str:
    value = entry.value
    if entry.name in ("ADR", "ORG"):
        return ", ".join(filter(None, map(_read_text, re.split(r"(?<!\\);", value))))
    if entry.name in ("ATTENDEE", "ORGANIZER"):
        name = _COMMON_NAME.search(entry.parameters)
        address = re.sub("^mailto:", "", value, flags=re.IGNORECASE)
        words = (name["quoted"] or name["plain"] or "").strip() if name else ""
        reply = _REPLY.search(entry.parameters)
        person = f"{words} ({address})" if words and words != address else address
        return f"{person}, {reply[1].lower()}" if reply else person
    if entry.name == "N":
        family, forename, *_ = [*map(_read_text, re.split(r"(?<!\\);", value)), ""]
        return f"{forename} {family}".strip()
    if entry.name == "RRULE":
        return _read_rule(value)
    if entry.name == "DURATION":
        return _read_duration(value)
    return _read_times(entry) or _read_text(re.sub("^tel:", "", value, flags=re.IGNORECASE))


def _read_rule(value: str) -> str:
    """Return how an event repeats: `every 2 weeks on MO, WE until 2026-12-31`."""
    fields = dict(part.partition("=")[::2] for part in value.upper().split(";"))
    period = _PERIODS.get(fields.pop("FREQ", ""), "")
    if not period:
        return value
    count = fields.pop("INTERVAL", "1")
    words = [f"every {period}" if count == "1" else f"every {count} {period}s"]
    words += [f"on {days.replace(',', ', ')}"] if (days := fields.pop("BYDAY", "")) else []
    if end := fields.pop("UNTIL", ""):
        words.append(f"until {_format_time(end, '') or end}")
    words += [f"{times} times"] if (times := fields.pop("COUNT", "")) else []
    fields.pop("WKST", None)
    return " ".join([*words, *(f"{name}={field}" for name, field in fields.items() if field)])


def _read_duration(value: str) -> str:
    match = _DURATION.fullmatch(value)
    if match is None:
        return value
    sign, *counts = match.groups()
    units = ("weeks", "days", "h", "min")
    words = " ".join(f"{count} {unit}" for count, unit in zip(counts, units, strict=True) if count)
    return f"-{words}" if sign == "-" and words else words


def _read_times(entry: _Property) -> str:
    """Return dates or times as people write them; empty for another value."""
    zone = re.search(r";TZID=\"?([^;:\"]+)", entry.parameters, re.IGNORECASE)
    # The end of whole days is the day after the last one.
    days = 1 if entry.name == "DTEND" and "T" not in entry.value else 0
    times = [_format_time(value, zone[1] if zone else "", before=days) for value in entry.value.split(",")]
    return ", ".join(times) if all(times) else ""


def _format_time(value: str, zone: str, *, before: int = 0) -> str:
    """Return a date or time; empty for another value.

    Args:
        before: days that are subtracted.
    """
    match = _STAMP.fullmatch(value)
    if match is None:
        return ""
    year, month, day, hour, minute, second, utc = match.groups()
    try:
        moment = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
        moment -= timedelta(days=before)
    except (ValueError, OverflowError):
        return ""
    name = "UTC" if utc else zone
    return moment.strftime("%Y-%m-%d") if hour is None else f"{moment:%Y-%m-%d %H:%M} {name}".rstrip()


def _read_text(value: str) -> str:
    text = _ESCAPE.sub(lambda match: " " if match[1] in "nN" else match[1], value)
    return " ".join(text.split())
