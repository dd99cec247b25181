"""Parse iCalendar and vCard: each event or person is a section, each property a line."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.text.decode import decode

# RFC 5545 and RFC 6350: a folded line continues after a line end and one white space.
_FOLD = re.compile(r"\n[ \t]")
_LINE = re.compile(r"(?:[\w-]+\.)?(?P<name>[\w-]+)(?P<parameters>(?:;(?:[^\":;]|\"[^\"]*\")*)*):(?P<value>.*)")
_COMMON_NAME = re.compile(r";CN=(?:\"(?P<quoted>[^\"]*)\"|(?P<plain>[^;:]*))", re.IGNORECASE)
_TYPE = re.compile(r";TYPE=\"?(?P<type>[^;:\"]*)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\([nN,;\\])")
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_SECTIONS = frozenset({"VEVENT", "VTODO", "VJOURNAL", "VCARD"})
_LABELS = {
    "DTSTART": "Start",
    "DTEND": "End",
    "DUE": "Due",
    "DURATION": "Duration",
    "RRULE": "Repeats",
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
_TITLES = ("SUMMARY", "FN")


class _Property(NamedTuple):
    name: str
    parameters: str
    value: str


def parse_calendar(data: bytes, limits: OutputLimits, *, media_type: str) -> ParsedDocument:
    """Parse a calendar or address book.

    Args:
        data: iCalendar or vCard.
        limits: limits of the result.
        media_type: which of the two it is.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    composition = Composition(limits)
    section: list[_Property] | None = None
    for line in _FOLD.sub("", decode(data)).split("\n"):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        entry = _Property(match["name"].upper(), match["parameters"], match["value"].strip())
        kind = entry.value.upper()
        if entry.name == "BEGIN" and kind in _SECTIONS:
            section = []
        elif entry.name == "END" and kind in _SECTIONS and section is not None:
            _add_section(composition, section)
            section = None
        elif section is not None and entry.name != "BEGIN":
            section.append(entry)
    return composition.build(media_type, None)


def _add_section(composition: Composition, entries: list[_Property]) -> None:
    title = next((_read_text(entry.value) for entry in entries if entry.name in _TITLES and entry.value), "")
    composition.add_heading(1, title)
    composition.add_block("\n".join(_lines(entries)))


def _lines(entries: list[_Property]) -> Iterator[str]:
    for entry in entries:
        label = _LABELS.get(entry.name)
        value = _read_value(entry)
        if label and value:
            kind = _TYPE.search(entry.parameters) if entry.name in ("TEL", "EMAIL", "ADR") else None
            yield f"{label} ({kind['type'].lower()}): {value}" if kind else f"{label}: {value}"


def _read_value(entry: _Property) -> str:
    value = entry.value
    if entry.name in ("ADR", "ORG"):
        return ", ".join(filter(None, map(_read_text, re.split(r"(?<!\\);", value))))
    if entry.name in ("ATTENDEE", "ORGANIZER"):
        name = _COMMON_NAME.search(entry.parameters)
        address = re.sub("^mailto:", "", value, flags=re.IGNORECASE)
        words = (name["quoted"] or name["plain"] or "").strip() if name else ""
        return f"{words} ({address})" if words and words != address else address
    return _read_time(entry) or _read_text(value)


def _read_time(entry: _Property) -> str:
    """Return a date or time as people write it; empty for another value."""
    match = _STAMP.fullmatch(entry.value)
    if match is None:
        return ""
    year, month, day, hour, minute, second, utc = match.groups()
    try:
        moment = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
    except ValueError:
        return ""
    zone = re.search(r";TZID=\"?([^;:\"]+)", entry.parameters, re.IGNORECASE)
    name = "UTC" if utc else zone[1] if zone else ""
    return moment.strftime("%Y-%m-%d") if hour is None else f"{moment:%Y-%m-%d %H:%M} {name}".rstrip()


def _read_text(value: str) -> str:
    text = _ESCAPE.sub(lambda match: " " if match[1] in "nN" else match[1], value)
    return " ".join(text.split())
