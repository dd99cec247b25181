"""Generate tables with known facts and the traps of tables in reports."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

Fact = tuple[str, str, str]
"""First value of a row, name of the column, value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A cell as a file has it."""

    text: str
    """As the cell shows it."""
    raw: Any = None
    """What a workbook stores; None for the text."""
    code: str = "General"
    """Its number format in a workbook."""
    columns: int = 1
    rows: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTable:
    """A table as a file has it, and what it says."""

    header: Sequence[Sequence[Item]]
    body: Sequence[Sequence[Item]]
    facts: Sequence[Fact]
    titles: Sequence[str] = ()
    notes: Sequence[str] = ()
    row_headers: bool = False
    """Whether the first cells of the body are header cells."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A document of one or more tables."""

    name: str
    tables: Sequence[KnownTable]
    side_by_side: bool = False
    offset: tuple[int, int] = (0, 0)
    """Blank rows above and columns on the left, on a sheet."""
    formats: frozenset[str] = field(default=frozenset({"xlsx", "csv", "html", "docx", "pptx", "md"}))

    @property
    def facts(self) -> list[Fact]:
        return [fact for table in self.tables for fact in table.facts]


_MERGING = frozenset({"xlsx", "html", "docx", "pptx"})
_SHEETS = frozenset({"xlsx", "csv"})
_PLACES = "North South East West Lisbon Porto Oslo Rome Graz Lyon Cork Turin Malmo Gdansk Ghent".split()
_METRICS = "Seats Price Orders Revenue Visits Staff Weight Margin Stock Returns Leads Calls".split()
_MONTHS = "January February March April May June".split()


def count(rng: random.Random) -> Item:
    """Return a whole number, with separators from a thousand on."""
    value = rng.choice([rng.randrange(3, 990), rng.randrange(1000, 990_000)])
    return Item(text=f"{value:,}", raw=value, code="#,##0")


def money(rng: random.Random) -> Item:
    """Return an amount in euros."""
    value = rng.randrange(100, 9_999_999) / 100
    return Item(text=f"{value:,.2f} €", raw=value, code="#,##0.00 [$€-407]")


def share(rng: random.Random) -> Item:
    """Return a percentage."""
    value = rng.randrange(1, 999) / 1000
    return Item(text=f"{value * 100:.1f} %", raw=value, code="0.0 %")


def day(rng: random.Random) -> Item:
    """Return a date."""
    value = date(rng.randrange(2015, 2026), rng.randrange(1, 13), rng.randrange(1, 28))
    return Item(text=f"{value.day} {value:%b} {value.year}", raw=value, code="d mmm yyyy")


def plain_number(rng: random.Random) -> Item:
    """Return a whole number as a workbook shows it without format; some look like years."""
    value = rng.choice([rng.randrange(1, 5000), rng.randrange(1950, 2030)])
    return Item(text=str(value), raw=value)


_KINDS = (count, money, share, day, plain_number)


def words(*texts: str) -> list[Item]:
    return [Item(text=text) for text in texts]


def collect_facts(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Fact]:
    return [(row[0], name, value) for row in rows for name, value in zip(names, row, strict=True) if value]


def build_table(names: Sequence[str], rows: Sequence[Sequence[Item]], **fields: Any) -> KnownTable:
    """Return a table with one header row."""
    facts = collect_facts(names, [[item.text for item in row] for row in rows])
    return KnownTable(header=[words(*names)], body=rows, facts=facts, **fields)


def grid(rng: random.Random, *, rows: int = 0, columns: int = 0, first: str = "Place") -> KnownTable:
    """Return a table of places with a number of one kind in each column."""
    places = rng.sample(_PLACES, rows or rng.randrange(3, 9))
    metrics = rng.sample(_METRICS, columns or rng.randrange(2, 6))
    kinds = [rng.choice(_KINDS) for _ in metrics]
    return build_table([first, *metrics], [[Item(text=place), *(kind(rng) for kind in kinds)] for place in places])


def with_years(rng: random.Random) -> KnownTable:
    """Years, stored as numbers, above plain numbers."""
    start, places = rng.randrange(1995, 2020), rng.sample(_PLACES, rng.randrange(4, 8))
    years = [str(start + step) for step in range(rng.randrange(3, 6))]
    first = rng.choice(["Region", ""])
    table = build_table([first, *years], [[Item(text=place), *(plain_number(rng) for _ in years)] for place in places])
    return replace(table, header=[[Item(text=first), *(Item(text=year, raw=int(year)) for year in years)]])


def with_groups(rng: random.Random, *, merged: bool = True) -> KnownTable:
    """Two header rows: years above quarters, merged or with gaps."""
    start, places = rng.randrange(2010, 2022), rng.sample(_PLACES, rng.randrange(3, 7))
    groups, parts = [str(start), str(start + 1)], rng.choice([["Q1", "Q2"], ["Plan", "Actual"], ["Q1", "Q2", "Q3"]])
    width = len(parts)
    above = [
        item
        for group in groups
        for item in (
            [Item(text=group, raw=int(group), columns=width)]
            if merged
            else [Item(text=group, raw=int(group)), *words(*[""] * (width - 1))]
        )
    ]
    header = [[Item(text="Region", rows=2 if merged else 1), *above], words(*([] if merged else [""]), *parts * 2)]
    rows = [[Item(text=place), *(count(rng) for _ in range(2 * width))] for place in places]
    names = ["Region", *(f"{group} / {part}" for group in groups for part in parts)]
    return KnownTable(
        header=header, body=rows, facts=collect_facts(names, [[item.text for item in row] for row in rows])
    )


def with_row_spans(rng: random.Random) -> KnownTable:
    """A place covers several rows."""
    metrics = rng.sample(_METRICS, 2)
    body, values = [], []
    for place in rng.sample(_PLACES, 3):
        height = rng.randrange(2, 4)
        for number, month in enumerate(rng.sample(_MONTHS, height)):
            cells = [Item(text=month), count(rng), money(rng)]
            body.append([Item(text=place, rows=height), *cells] if number == 0 else cells)
            values.append([place, *(cell.text for cell in cells)])
    names = ["Place", "Month", *metrics]
    return KnownTable(header=[words(*names)], body=body, facts=collect_facts(names, values))


def with_wide_cells(rng: random.Random) -> KnownTable:
    """A value for two columns, and lines across the table."""
    places = rng.sample(_PLACES, 6)
    names = ["Place", "Morning", "Evening", "Staff"]
    body: list[list[Item]] = []
    facts: list[Fact] = []
    for number, place in enumerate(places):
        if number % 3 == 0:
            body.append([Item(text=f"Zone {number // 3 + 1}", columns=4)])
        if number == 2:
            body.append([Item(text=place), Item(text="closed", columns=2), staff := count(rng)])
            facts += [(place, "Place", place), (place, "Morning, Evening", "closed"), (place, "Staff", staff.text)]
        else:
            row = [Item(text=place), count(rng), count(rng), count(rng)]
            body.append(row)
            facts += collect_facts(names, [[item.text for item in row]])
    return KnownTable(header=[words(*names)], body=body, facts=facts)


def with_gaps(rng: random.Random) -> KnownTable:
    """Empty cells."""
    table = grid(rng, columns=4)
    body = [[row[0], *(Item(text="") if rng.random() < 0.3 else item for item in row[1:])] for row in table.body]
    return build_table([item.text for item in table.header[0]], body)


def with_units(rng: random.Random) -> KnownTable:
    """Units in brackets below the names."""
    places = rng.sample(_PLACES, 5)
    rows = [[Item(text=place), plain_number(rng), plain_number(rng)] for place in places]
    names = ["Place", "Weight (kg)", "Price (EUR)"]
    header = [words("Place", "Weight", "Price"), words("", "(kg)", "(EUR)")]
    return KnownTable(
        header=header, body=rows, facts=collect_facts(names, [[item.text for item in row] for row in rows])
    )


def with_terms(rng: random.Random) -> KnownTable:
    """Numbers with units as names."""
    names = ["Customer", "30 days", "60 days", "90 days"]
    return build_table(names, [[Item(text=place), *(money(rng) for _ in range(3))] for place in rng.sample(_PLACES, 5)])


def pairs(rng: random.Random) -> KnownTable:
    """Names and values of one thing, without a header row."""
    place = rng.choice(_PLACES)
    rows = [words("Name", f"{place} depot"), [Item(text="Founded"), plain_number(rng)]]
    rows += [words("Manager", "Ada Byron"), [Item(text="Budget"), money(rng)], [Item(text="Opened"), day(rng)]]
    facts = [(value.text, name.text, value.text) for name, value in rows]
    return KnownTable(header=[], body=rows, facts=facts, row_headers=True)


def with_text(rng: random.Random) -> KnownTable:
    """Words in all columns."""
    names = ["Role", "Duty", "Deputy"]
    roles = rng.sample(["Owner", "Editor", "Reader", "Auditor", "Operator"], 4)
    duties = ["keeps the keys and the plan", "writes pages", "reads what is released", "checks the log every week"]
    return build_table(names, [words(role, rng.choice(duties), rng.choice(roles)) for role in roles])


def with_dates(rng: random.Random) -> KnownTable:
    """Dates as names."""
    dates = [date(2024, month, 28) for month in rng.sample(range(1, 13), 3)]
    names = ["Site", *(f"{value.day} {value:%b} {value.year}" for value in dates)]
    rows = [[Item(text=place), *(count(rng) for _ in dates)] for place in rng.sample(_PLACES, 5)]
    header = [
        Item(text="Site"),
        *(Item(text=name, raw=value, code="d mmm yyyy") for name, value in zip(names[1:], dates, strict=True)),
    ]
    return replace(build_table(names, rows), header=[header])


def with_row_headers(rng: random.Random) -> KnownTable:
    return replace(grid(rng), row_headers=True)


def titled(table: KnownTable, *titles: str, notes: Sequence[str] = ()) -> KnownTable:
    return replace(table, titles=titles, notes=notes)


_Make = Callable[[random.Random], Case]


def _case(name: str, make: Callable[[random.Random], KnownTable], **fields: Any) -> tuple[str, _Make]:
    return name, lambda rng: Case(name=name, tables=[make(rng)], **fields)


_DEVELOPMENT: tuple[tuple[str, _Make], ...] = (
    _case("plain", grid),
    _case("titled", lambda rng: titled(grid(rng), "Sales of the year", "all amounts before tax")),
    _case("years", with_years),
    _case("groups, merged", with_groups, formats=_MERGING),
    _case("groups, gaps", lambda rng: with_groups(rng, merged=False), formats=_SHEETS),
    _case("row spans", with_row_spans, formats=_MERGING),
    _case("wide cells", with_wide_cells, formats=_MERGING),
    _case("gaps", with_gaps),
    _case("units", with_units, formats=_MERGING | _SHEETS),
    _case("terms", with_terms),
    _case("pairs", pairs, formats=frozenset({"xlsx", "csv", "html", "docx", "pptx"})),
    _case("words", with_text),
    _case("dates", with_dates),
    _case("row headers", with_row_headers),
    _case("notes", lambda rng: titled(grid(rng, columns=3), notes=["Source (own count)"])),
    (
        "stacked",
        lambda rng: Case(name="stacked", tables=[titled(grid(rng), "Plans"), titled(with_years(rng), "Years")]),
    ),
    (
        "side by side",
        lambda rng: Case(
            name="side by side",
            tables=[grid(rng, rows=4), grid(rng, rows=6, first="City")],
            side_by_side=True,
            formats=_SHEETS,
        ),
    ),
    _case("offset", grid, offset=(3, 2), formats=_SHEETS),
)
_HELD_OUT: tuple[tuple[str, _Make], ...] = (
    *_DEVELOPMENT,
    _case("large", lambda rng: grid(rng, rows=15, columns=6)),
    _case("titled groups", lambda rng: titled(with_groups(rng), "Results by quarter"), formats=_MERGING),
    _case("titled years", lambda rng: titled(with_years(rng), "Development", notes=["Note (preliminary)"])),
    _case("titled spans", lambda rng: titled(with_row_spans(rng), "Visits by month"), formats=_MERGING),
    (
        "three stacked",
        lambda rng: Case(
            name="three stacked",
            tables=[
                titled(make(rng), title)
                for make, title in ((with_gaps, "Gaps"), (with_dates, "Days"), (with_text, "Roles"))
            ],
        ),
    ),
    (
        "offset, side by side",
        lambda rng: Case(
            name="offset, side by side",
            tables=[with_years(rng), grid(rng)],
            side_by_side=True,
            offset=(2, 1),
            formats=_SHEETS,
        ),
    ),
)


def cases(*, held_out: bool, copies: int) -> list[Case]:
    """Return the cases of a part; the held-out one has other numbers, and combinations of its own."""
    cases = []
    for copy in range(copies):
        for number, (name, make) in enumerate(_HELD_OUT if held_out else _DEVELOPMENT):
            rng = random.Random(f"{held_out} {copy} {number}")
            cases.append(replace(make(rng), name=f"{name} {copy + 1}"))
    return cases
