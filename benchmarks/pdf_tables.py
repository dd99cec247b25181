"""Write PDF files with tables of known cells, as in reports and papers.

The styles with reportlab are held out: rules were developed on those with fpdf2.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.pdf_prose import Canvas, FpdfCanvas, ReportlabCanvas

_SUBJECTS = (
    "Northern region|Southern region|Eastern region|Western region|Central office|Online sales|Retail stores|"
    "Wholesale|Export|Spare parts|Service contracts|Training|Licences|Hardware|Consulting|Maintenance|Logistics|"
    "Marketing|Research|Facilities|Legal advice|Travel|Energy|Insurance"
).split("|")
_MEASURES = "Revenue|Cost|Margin|Units|Staff|Orders|Returns|Budget|Actual|Share|Growth|Price|Visits|Hours".split("|")
_REMARKS = (
    "open|closed in May|under review by the board|approved|renewed for two years|moved to the new building|"
    "audited|sold at the end of the third quarter|in preparation|no change|planned for the next year|partly done"
).split("|")
_WORDS = "the report shows that most of the regions had a better year than before and will grow in the next one".split()


@dataclass(frozen=True, kw_only=True)
class TableStyle:
    """How a table is set."""

    rules: str
    """grid, rows, book (above, below the header, below), columns (grid without lines between rows), none."""
    levels: int = 1
    """Header rows."""
    bold: bool = True
    wrapped: bool = False
    """The last column has remarks of several lines."""
    empty: float = 0.0
    """Share of the cells without a value."""
    caption: str = ""
    """above, below or nothing."""
    columns_of_prose: int = 1
    pages: int = 1
    by_column: bool = False
    """A cell of several lines is drawn before the next cell."""
    size: float = 9.0
    padding: float = 4.0


DEVELOPMENT = {
    "grid": TableStyle(rules="grid"),
    "grid with remarks": TableStyle(rules="grid", wrapped=True, empty=0.15, caption="above"),
    "grid of two header rows": TableStyle(rules="grid", levels=2, empty=0.1),
    "rows": TableStyle(rules="rows", empty=0.1, wrapped=True),
    "book": TableStyle(rules="book", levels=2, caption="above", empty=0.1),
    "book in a column": TableStyle(rules="book", columns_of_prose=2, size=8, caption="below", bold=False),
    "unruled": TableStyle(rules="none", empty=0.2),
    "unruled with remarks": TableStyle(rules="none", wrapped=True, empty=0.1, by_column=True),
    "columns": TableStyle(rules="columns", empty=0.1),
}
HELD_OUT = {
    "grid in a column": TableStyle(rules="grid", columns_of_prose=2, size=7.5, empty=0.1, bold=False),
    "grid over two pages": TableStyle(rules="grid", pages=2, empty=0.1),
    "grid with all": TableStyle(rules="grid", levels=2, wrapped=True, empty=0.1, caption="above", by_column=True),
    "rows, plain header": TableStyle(rules="rows", bold=False, empty=0.1, caption="below"),
    "book with remarks": TableStyle(rules="book", wrapped=True, empty=0.1, caption="above", bold=False),
    "book of two header rows": TableStyle(rules="book", levels=2, bold=False, size=10),
    "unruled, plain header": TableStyle(rules="none", bold=False, empty=0.1, caption="above"),
    "unruled of two header rows": TableStyle(rules="none", levels=2, empty=0.1, padding=7),
    "unruled over two pages": TableStyle(rules="none", pages=2, empty=0.1),
    "columns with remarks": TableStyle(rules="columns", empty=0.2, bold=False),
}

Fact = tuple[str, str, str]
"""First cell of a row, name of a column, value."""


def documents(*, held_out: bool, seeds: int = 4) -> Iterator[tuple[str, bytes, list[Fact]]]:
    """Yield name, file and facts of the generated documents."""
    canvas: Callable[[], Canvas] = ReportlabCanvas if held_out else FpdfCanvas
    for name, style in (HELD_OUT if held_out else DEVELOPMENT).items():
        for seed in range(seeds):
            setter = _Typesetter(canvas(), style, random.Random(f"{name} {seed}"))
            setter.document()
            yield f"{name} {seed}", setter.canvas.output(), setter.facts


@dataclass
class _Typesetter:
    canvas: Canvas
    style: TableStyle
    random: random.Random
    facts: list[Fact] = field(default_factory=list)
    _y: float = 0.0

    def document(self) -> None:
        """Draw a page of prose with a table in it, or a table over two pages."""
        style = self.style
        self.canvas.page()
        width = (475.0 - 20 * (style.columns_of_prose - 1)) / style.columns_of_prose
        self._y = 80
        self._prose(60, width, 6)
        names = self._names(width)
        rows = self._rows(names, self.random.randint(5, 9) if style.pages == 1 else 22)
        self.facts = [
            (row[0], name, value)
            for row in rows
            for name, value in zip((" / ".join(dict.fromkeys(filter(None, name))) for name in names), row, strict=True)
            if value
        ]
        if style.caption == "above":
            self._y += 10
            self.canvas.text(60, self._y, f"Table {self.random.randint(1, 9)}: Figures of the year", style.size)
            self._y += 6
        cut = len(rows) if style.pages == 1 else 12
        self._table(60, width, names, rows[:cut])
        if style.pages == 2:
            self.canvas.page()
            self._y = 80
            self._table(60, width, names, rows[cut:])
        if style.caption == "below":
            self._y += 12
            self.canvas.text(60, self._y, f"Table {self.random.randint(1, 9)}. Figures of the year", style.size)
        self._y += 20
        self._prose(60, width, 8)
        if style.columns_of_prose == 2:
            self._y = 80
            self._prose(80 + width, width, 40)

    def _prose(self, x: float, width: float, lines: int) -> None:
        for _ in range(lines):
            words: list[str] = []
            while self.canvas.width(" ".join(words), 10) < width - 45:
                words.append(self.random.choice(_WORDS))
            self.canvas.text(x, self._y, " ".join(words), 10)
            self._y += 12

    def _names(self, width: float) -> list[tuple[str, ...]]:
        count = self.random.randint(3, 5) if width > 300 else 3
        measures = self.random.sample(_MEASURES, count)
        remark = [("Remark",) if self.style.levels == 1 else ("", "Remark")] if self.style.wrapped else []
        if self.style.levels == 1:
            return [("Item",), *((name,) for name in measures), *remark]
        years = ["2023", "2024"]
        return [("", "Item"), *((year, name) for year in years for name in measures[:2]), *remark]

    def _rows(self, names: Sequence[tuple[str, ...]], count: int) -> list[list[str]]:
        subjects = [f"{name} {round_}" if round_ else name for round_ in range(2) for name in _SUBJECTS]
        rows = []
        for subject in self.random.sample(subjects[: max(24, count)], count):
            row = [subject, *(self._number() for _ in names[1:])]
            if self.style.wrapped:
                row[-1] = self.random.choice(_REMARKS)
            for column in range(1, len(row)):
                if self.random.random() < self.style.empty:
                    row[column] = ""
            rows.append(row)
        return rows

    def _number(self) -> str:
        kind = self.random.random()
        if kind < 0.2:
            return f"{self.random.uniform(0, 100):.1f} %"
        return f"{self.random.randint(1, 99999):,}" if kind < 0.8 else f"{self.random.uniform(1, 900):.2f}"

    def _table(self, x: float, width: float, names: Sequence[tuple[str, ...]], rows: Sequence[Sequence[str]]) -> None:
        style = self.style
        first = 120.0 if width > 300 else 80.0
        last = 90.0 if style.wrapped else 0.0
        others = len(names) - 1 - (1 if style.wrapped else 0)
        each = (width - first - last) / others
        edges = [x, x + first, *(x + first + each * (at + 1) for at in range(others)), *([x + width] if last else [])]
        tops = [self._y]
        for level in range(style.levels):
            self._header_row(edges, [name[level] for name in names], spread=level < style.levels - 1)
            tops.append(self._y)
        for row in rows:
            self._row(edges, row)
            tops.append(self._y)
        self._draw_rules(edges, tops)

    def _header_row(self, edges: Sequence[float], cells: Sequence[str], *, spread: bool) -> None:
        at = 0
        y = self._y + self.style.size + 3
        while at < len(cells):
            end = at + 1
            while spread and cells[at] and end < len(cells) and cells[end] == cells[at]:
                end += 1
            text_width = self.canvas.width(cells[at], self.style.size, bold=self.style.bold)
            if spread:
                x = (edges[at] + edges[end] - text_width) / 2
                if self.style.rules == "book" and end - at > 1:
                    self.canvas.rule(edges[at] + 3, y + 3, edges[end] - 3, y + 3)
            elif at == 0 or cells[at] == "Remark":
                x = edges[at] + self.style.padding
            else:
                x = edges[at + 1] - self.style.padding - text_width
            if cells[at]:
                self.canvas.text(x, y, cells[at], self.style.size, bold=self.style.bold)
            at = end
        self._y = y + 5

    def _row(self, edges: Sequence[float], row: Sequence[str]) -> None:
        size, padding = self.style.size, self.style.padding
        parts: list[tuple[float, int, str]] = []
        most = 1
        for column, value in enumerate(row):
            room = edges[column + 1] - edges[column] - 2 * padding
            lines = self._wrap(value, room)
            most = max(most, len(lines))
            right = 0 < column < len(row) - (1 if self.style.wrapped else 0)
            for number, line in enumerate(lines):
                x = edges[column] + padding
                if right:
                    x = edges[column + 1] - padding - self.canvas.width(line, size)
                parts.append((x, number, line))
        if not self.style.by_column:
            parts.sort(key=lambda part: part[1])
        for x, number, line in parts:
            self.canvas.text(x, self._y + size + 3 + number * (size + 1.5), line, size)
        self._y += size + 3 + (most - 1) * (size + 1.5) + 5

    def _wrap(self, value: str, room: float) -> list[str]:
        lines: list[str] = []
        for word in value.split():
            if lines and self.canvas.width(f"{lines[-1]} {word}", self.style.size) <= room:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        return lines

    def _draw_rules(self, edges: Sequence[float], tops: Sequence[float]) -> None:
        rules, levels = self.style.rules, self.style.levels
        if rules in ("grid", "rows"):
            for y in [tops[0], *tops[levels:]]:
                self.canvas.rule(edges[0], y, edges[-1], y)
        if rules in ("book", "columns"):
            for y in (tops[0], tops[levels], tops[-1]):
                self.canvas.rule(edges[0], y, edges[-1], y)
        if rules in ("grid", "columns"):
            for at, x in enumerate(edges):
                inner = levels == 2 and 0 < at < len(edges) - 1 and at % 2 == 0 and at < 5
                self.canvas.rule(x, tops[1] if inner else tops[0], x, tops[-1])
        if rules == "grid" and levels == 2:
            self.canvas.rule(edges[1], tops[1], edges[5], tops[1])
