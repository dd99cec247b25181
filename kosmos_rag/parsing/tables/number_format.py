"""Format numbers and dates as a spreadsheet cell shows them.

The format codes are those of ECMA-376, part 1, 18.8.31. A code of rare features (fractions, conditions, digits between
literals) shows the value without format. Names of days and months are English.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

from kosmos_rag.parsing import bounds

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|(?P<space>_.)|\*.|\[\$(?P<currency>[^\]-]*)(?:-[^\]]*)?\]|(?P<bracket>\[[^\]]*\])'
    r"|(?P<general>General)|(?P<exponent>[eE][+-]0+)|(?P<digits>[0#?.,]+)|(?P<literal>.)",
    re.DOTALL,
)
_CONDITION = re.compile(r"\[[<>=]")
_COLOR = re.compile(r"\[(?:black|blue|cyan|green|magenta|red|white|yellow|color\d+)\]", re.IGNORECASE)
_DATE_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|_.|\*.|(?P<elapsed>\[(?:h+|m+|s+)\])|\[[^\]]*\]'
    r"|(?P<part>y+|m+|d+|h+|s+(?:\.0+)?|AM/PM|A/P)|(?P<literal>.)",
    re.IGNORECASE | re.DOTALL,
)
_SYSTEM_DATE = re.compile(r"\[\$-F[48]00\]|mm-dd-yy|m/d/yy h:mm")
"""Formats that Excel shows by the settings of the computer."""
_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905

Value = int | float | bool | str | datetime | date | time | timedelta


def show(value: Value, code: str) -> str:
    """Return the value as a cell with this format code shows it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).upper()
    if len(code) > bounds.MAX_FORMAT_CHARS:
        code = "General"
    if isinstance(value, int | float):
        return _number_writer(code)(value)
    return _show_date(value, code)


def plain(value: Value) -> str:
    """Return a value without format.

    Numbers have at most 15 digits, dates are in ISO 8601.
    """
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time.min else value.isoformat(" ", "seconds")
    return str(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Section:
    """A compiled section of a format code."""

    before: str
    after: str
    digits: str
    """The placeholders of the integer part, without separators; empty for a section of literals."""
    decimals: str
    """Those after the point."""
    grouped: bool
    factor: Decimal
    exponent: bool

    def show(self, value: Decimal) -> str:
        if not self.digits and not self.decimals:
            return self.before + self.after
        value *= self.factor
        if self.exponent:
            return f"{self.before}{float(value):.{len(self.decimals)}E}{self.after}"
        value = value.quantize(Decimal(1).scaleb(-len(self.decimals)), rounding=ROUND_HALF_UP)
        integer, _, fraction = f"{value:f}".partition(".")
        integer = integer.lstrip("0").rjust(self.digits.count("0"), "0")
        if self.grouped and integer:
            integer = f"{int(integer):,}".rjust(len(integer), "0")
        significant = len(fraction.rstrip("0"))
        fraction = fraction[: max(significant, self.decimals.rfind("0") + 1)]
        return f"{self.before}{integer}{'.' if fraction else ''}{fraction}{self.after}"


@lru_cache(maxsize=512)
def _number_writer(code: str) -> Callable[[int | float], str]:
    """Return a function that writes numbers by a format code."""
    texts = list(_split_sections(code))
    sections = [_compile(text) for text in texts[:3]]
    if any(section is None for section in sections) or _CONDITION.search(code):
        return plain
    positive = sections[0]
    negative = sections[1] if len(sections) > 1 else None
    zero = sections[2] if len(sections) > 2 else None

    def write(value: int | float) -> str:
        number = Decimal(repr(value))
        if not number.is_finite() or positive is None or abs(number.adjusted()) > bounds.MAX_FORMAT_DIGITS:
            return plain(value)
        if number < 0:
            result = (negative or positive).show(-number)
            has_digits = any(character in "123456789" for character in result)
            return f"-{result}" if negative is None and has_digits else result
        return (zero if zero and not number else positive).show(number)

    return write


def _split_sections(code: str) -> Iterator[str]:
    section = ""
    for token in _TOKEN.finditer(code):
        if token["literal"] == ";":
            yield section
            section = ""
        else:
            section += token[0]
    yield section


def _compile(text: str) -> _Section | None:
    """Compile a section; None for what is not supported."""
    literals = ["", ""]
    numbers: list[str] = []
    exponent = False
    percents = 0
    for token in _TOKEN.finditer(_COLOR.sub("", text)):
        if token["general"] or token["bracket"] or token["literal"] in ("@", "/"):
            return None
        if token["digits"]:
            if numbers and (literals[1] or exponent):
                return None
            numbers.append(token["digits"])
        elif token["exponent"]:
            exponent = True
        else:
            percents += token["literal"] == "%"
            literals[bool(numbers)] += _literal(token)
    return _section(literals, "".join(numbers), percents, exponent=exponent)


def _literal(token: re.Match[str]) -> str:
    if token["space"]:
        return ""
    return token["quoted"] or token["escaped"] or token["currency"] or token["literal"] or ""


def _section(literals: list[str], digits: str, percents: int, *, exponent: bool) -> _Section | None:
    integer, _, decimals = digits.partition(".")
    scaled = (decimals or integer).rstrip(",") if decimals else integer.rstrip(",")
    thousands = len(decimals or integer) - len(scaled)
    integer, decimals = (integer, scaled) if decimals else (scaled, "")
    if max(len(integer), len(decimals)) > bounds.MAX_FORMAT_DIGITS or "." in decimals:
        return None
    return _Section(
        before=literals[0].lstrip(),
        after=literals[1].rstrip(),
        digits=integer.replace(",", ""),
        decimals=decimals.replace(",", ""),
        grouped="," in integer,
        factor=Decimal(100) ** percents / Decimal(1000) ** thousands,
        exponent=exponent,
    )


def _show_date(value: datetime | date | time | timedelta, code: str) -> str:
    code = next(_split_sections(code))
    if _SYSTEM_DATE.search(code) or not _DATE_TOKEN.search(code):
        return plain(value)
    moment, elapsed = _moment(value)
    tokens = list(_DATE_TOKEN.finditer(code))
    has_half = any((token["part"] or "").upper() in ("AM/PM", "A/P") for token in tokens)
    parts = []
    for number, token in enumerate(tokens):
        part = (token["part"] or token["elapsed"] or "").lower()
        if part.startswith("m") and _is_minute(tokens, number):
            part = part.replace("m", "n")
        literal = token["quoted"] or token["escaped"] or token["literal"] or ""
        parts.append(_date_part(part, moment, elapsed, has_half=has_half) if part else literal)
    return "".join(parts).strip()


def _moment(value: datetime | date | time | timedelta) -> tuple[datetime, timedelta]:
    """Return the value as a datetime and as a duration.

    The duration is since the beginning of its day, or of all.
    """
    if isinstance(value, timedelta):
        return datetime.min + value % timedelta(days=1), value
    if isinstance(value, time):
        value = datetime.combine(date.min, value)
    elif not isinstance(value, datetime):
        value = datetime.combine(value, time.min)
    return value, value - datetime.combine(value.date(), time.min)


def _is_minute(tokens: list[re.Match[str]], number: int) -> bool:
    """Return whether an `m` means minutes.

    It follows hours, or seconds follow it.
    """
    parts = [(token["part"] or token["elapsed"] or "").lower().strip("[]") for token in tokens]
    before = next((part for part in reversed(parts[:number]) if part), "")
    after = next((part for part in parts[number + 1 :] if part), "")
    return before.startswith("h") or after.startswith("s")


def _date_part(part: str, moment: datetime, elapsed: timedelta, *, has_half: bool) -> str:
    if part.startswith("["):
        unit = {"h": 3600, "m": 60, "n": 60, "s": 1}[part[1]]
        return str(int(elapsed.total_seconds() // unit)).rjust(len(part) - 2, "0")
    if part in ("am/pm", "a/p"):
        return ("AM", "PM")[moment.hour >= 12][: len(part) // 2 or 1]
    letter, width = part[0], len(part)
    if letter == "y":
        return f"{moment.year:04}" if width > 2 else f"{moment.year % 100:02}"
    if letter in "md" and width > 2:
        names, index = (_MONTHS, moment.month - 1) if letter == "m" else (_DAYS, moment.weekday())
        return names[index][: {3: 3, 5: 1}.get(width)] if letter == "m" or width == 3 else names[index]
    hour = (moment.hour + 11) % 12 + 1 if has_half else moment.hour
    if letter == "s":
        integer, _, digits = part.partition(".")
        fraction = f".{moment.microsecond:06}"[: len(digits) + 1] if digits else ""
        return f"{moment.second:0{min(len(integer), 2)}}{fraction}"
    number = {"m": moment.month, "d": moment.day, "h": hour, "n": moment.minute}[letter]
    return f"{number:0{min(width, 2)}}"
