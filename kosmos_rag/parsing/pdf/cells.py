"""Rows and columns of a PDF table, from the positions of its characters."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kosmos_rag.parsing.pdf.graphics import NEAR, Box
from kosmos_rag.parsing.pdf.lines import ONE_LINE, join_text, tidy
from kosmos_rag.parsing.pdf.text_layer import Run
from kosmos_rag.parsing.tables.table import Table

_COLUMN_GAP = 0.4
"""Sizes of the letters between two columns at least."""
_SAME_ROW = 0.85
"""Sizes of the letters between lines that are too near to be of two rows: of cells that are centred vertically."""
LEADING = 1.45
"""Sizes of the letters between two lines of a cell at most."""
_CENTRED = 1.3
"""Sizes of the letters from the first line of a cell to the row that it surrounds at most."""
_MAX_COLUMNS = 50
SPANNING = 0.12
"""Share of the rows that may cross the gap between two columns."""
_SENTENCE_WORDS = 5
_MOST = 0.6
"""Share of the cells with as many words that prose in columns has."""
_NUMBER = re.compile(r"[-+(−–]?[$€£¥]?\s?[-+(−–]?[\d.,'%\s]*\d[\d.,'%)\s]*(?:\^\(?\w+\)?)?")  # noqa: RUF001
_CURRENCY = re.compile(r"[$€£¥]")
_BLANK_NUMBER = re.compile(r"[-–—―－]|n/?a|unq", re.IGNORECASE)  # noqa: RUF001

Columns = Sequence[tuple[float, float]]
"""Left and right of each column."""


class FoundTable(NamedTuple):
    """A table on a page."""

    table: Table
    box: Box
    columns: Columns
    """Where its columns are, to know them on the next page."""


@dataclass(kw_only=True, slots=True)
class Row:
    """A row under construction."""

    baseline: float
    cells: dict[int, list[Run]] = field(default_factory=lambda: defaultdict(list))
    """Runs by column."""
    spans: dict[int, int] = field(default_factory=dict)


def group_lines(runs: Iterable[Run]) -> list[list[Run]]:
    """Group runs into lines, from top to bottom."""
    lines: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: (-run.baseline, run.left)):
        last = lines[-1][0] if lines else None
        if last is not None and last.baseline - run.baseline <= ONE_LINE * max(last.size, run.size):
            lines[-1].append(run)
        else:
            lines.append([run])
    return [sorted(line, key=lambda run: run.left) for line in lines]


def find_columns(lines: Sequence[Sequence[Run]]) -> Columns:
    """Return left and right of each column.

    Few lines cross the gap between two columns.
    """
    size = max(1.0, sorted(run.size for line in lines for run in line)[sum(map(len, lines)) // 2])
    allowed = max(1, int(len(lines) * SPANNING)) if len(lines) >= 4 else 0
    best: list[tuple[float, float]] = []
    for crossing in range(allowed + 1):
        columns = _find_covered_stretches(lines, crossing, size)
        if len(columns) > len(best):
            best = columns
    return _join_currencies(lines, best) if len(best) <= _MAX_COLUMNS else []


def _find_covered_stretches(lines: Sequence[Sequence[Run]], crossing: int, size: float) -> list[tuple[float, float]]:
    """Return the stretches that more than `crossing` lines cover.

    Stretches that are closer than a column gap are joined.
    """
    runs = [run for line in lines for run in line]
    edges = sorted([*((run.left, 1) for run in runs), *((run.right, -1) for run in runs)])
    stretches: list[tuple[float, float]] = []
    depth, start = 0, 0.0
    for x, change in edges:
        if depth <= crossing < depth + change:
            start = x
        if depth + change <= crossing < depth:
            if stretches and start - stretches[-1][1] < _COLUMN_GAP * size:
                stretches[-1] = (stretches[-1][0], x)
            elif x > start:
                stretches.append((start, x))
        depth += change
    return stretches


def _join_currencies(lines: Sequence[Sequence[Run]], columns: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join a column of currency signs with the amounts on its right."""
    joined: list[tuple[float, float]] = []
    is_currency = False
    for column in columns:
        left, right = column
        column_runs = (run for line in lines for run in line if left <= (run.left + run.right) / 2 <= right)
        texts = [run.text.strip() for run in column_runs if run.right - run.left <= 2 * (right - left)]
        if joined and is_currency:
            joined[-1] = (joined[-1][0], column[1])
        else:
            joined.append(column)
        is_currency = bool(texts) and all(map(_CURRENCY.fullmatch, texts))
    return joined


def _overlap(run: Run, column: tuple[float, float]) -> float:
    return min(run.right, column[1]) - max(run.left, column[0])


def place_rows(lines: Sequence[Sequence[Run]], columns: Columns) -> list[Row]:
    """Return the lines as rows with columns.

    Lines that are too close to be two rows are joined.
    """
    rows: list[Row] = []
    last = 0.0
    for line in lines:
        row = _place(line, columns)
        if rows and last - row.baseline < _SAME_ROW * line[0].size:
            rows[-1] = merge_rows([rows[-1], row])
        else:
            rows.append(row)
        last = line[0].baseline
    return rows


def _place(line: Sequence[Run], columns: Columns) -> Row:
    """Put each run of a line into its column.

    It is the column that the run overlaps most.
    """
    row = Row(baseline=line[0].baseline)
    for run in line:
        overlaps = [_overlap(run, column) for column in columns]
        best = max(range(len(columns)), key=overlaps.__getitem__)
        covered = [at for at, overlap in enumerate(overlaps) if overlap > 0.5 * (columns[at][1] - columns[at][0])]
        if len(covered) > 1:
            parts = _divide(run, columns[covered[0] : covered[-1] + 1])
            if parts:
                for at, part in enumerate(parts, start=covered[0]):
                    row.cells[at].append(part)
                continue
            best = covered[0]
            row.spans[best] = covered[-1] - covered[0] + 1
        row.cells[best].append(run)
    return row


def _divide(run: Run, columns: Columns) -> list[Run]:
    """Return the words of a run over several columns, split at the gaps between these.

    Names of narrow columns may be drawn as one text. Where its letters are is estimated.
    """
    if abs(run.left - columns[0][0]) > run.size or abs(run.right - columns[-1][1]) > run.size:
        return []
    advance = (run.right - run.left) / max(1, len(run.text))
    spaces = [at for at, character in enumerate(run.text) if character == " " and 0 < at < len(run.text) - 1]
    cuts = [0]
    for (_, left), (right, _) in pairwise(columns):
        cut = min(spaces, key=lambda at: abs(run.left + at * advance - (left + right) / 2), default=0)
        if cut <= cuts[-1] or abs(run.left + cut * advance - (left + right) / 2) > run.size:
            return []
        cuts.append(cut)
    cuts.append(len(run.text))
    return [
        run._replace(text=run.text[start:end].strip(), left=left, right=right)
        for (start, end), (left, right) in zip(pairwise(cuts), columns, strict=True)
    ]


def join_continued(rows: Sequence[Row]) -> list[Row]:
    """Join lines that continue the cells of a row.

    They are below it, or around it if it is in the middle of a cell.
    """
    rows = _join_centred(rows)
    gaps = sorted(above.baseline - below.baseline for above, below in pairwise(rows))
    if not gaps:
        return list(rows)
    line_gap = gaps[0] * 1.15
    size = max(run.size for row in rows for runs in row.cells.values() for run in runs)
    is_leading = gaps[0] < LEADING * size
    has_two_gaps = is_leading and gaps[-1] > gaps[0] * 1.25 and sum(gap > line_gap for gap in gaps) >= 2
    columns = len({column for row in rows for column in row.cells})
    joined: list[Row] = [rows[0]]
    for above, row in pairwise(rows):
        near = above.baseline - row.baseline <= line_gap
        if near and _continues(joined[-1], row, columns, has_two_gaps=has_two_gaps):
            joined[-1] = merge_rows([joined[-1], row])
        else:
            joined.append(row)
    return joined


def _join_centred(rows: Sequence[Row]) -> list[Row]:
    """Join the two lines of a cell with the row between them."""
    joined: list[Row] = []
    index = 0
    while index < len(rows):
        if index + 2 < len(rows) and _surrounds(*rows[index : index + 3]):
            joined.append(merge_rows([rows[index + 1], rows[index], rows[index + 2]]))
            index += 3
        else:
            joined.append(rows[index])
            index += 1
    return joined


def _surrounds(above: Row, row: Row, below: Row) -> bool:
    up, down = above.baseline - row.baseline, row.baseline - below.baseline
    size = max(run.size for runs in above.cells.values() for run in runs)
    return (
        above.cells.keys() == below.cells.keys()
        and not above.cells.keys() & row.cells.keys()
        and abs(up - down) < 0.1 * up
        and up < _CENTRED * size
    )


def _continues(above: Row, row: Row, columns: int, *, has_two_gaps: bool) -> bool:
    if len(row.cells) >= columns or not row.cells.keys() <= above.cells.keys():
        return False
    is_text = not any(is_value(join_text(runs)) for runs in row.cells.values())
    if has_two_gaps:
        return is_text or 0 not in row.cells
    return 0 not in row.cells and is_text and len(row.cells) <= max(1, columns // 2)


def is_value(text: str) -> bool:
    """Return whether a text is a number, with its currency, percent sign or footnote mark."""
    return _NUMBER.fullmatch(text.strip()) is not None


def is_blank_value(text: str) -> bool:
    """Return whether a text means that a number is missing."""
    return _BLANK_NUMBER.fullmatch(text.strip()) is not None


def merge_rows(rows: Sequence[Row]) -> Row:
    """Return one row with the cells of several."""
    merged = Row(baseline=rows[0].baseline, spans=dict(rows[0].spans))
    for row in rows:
        for column, runs in row.cells.items():
            merged.cells[column] += runs
    return merged


def spread_header(rows: Sequence[Row], columns: Columns, horizontal: Sequence[Box]) -> None:
    """Find the columns that cells of an upper header row cover.

    By the line below them, else by their middle.

    Args:
        rows: the rows of the header and of the table, top first; the first one is changed.
        columns: left and right of each column.
        horizontal: ruled lines across the page.
    """
    if len(rows) < 3 or not 0 < len(rows[0].cells) < len(columns):
        return
    top = rows[0]
    cells, top.cells = dict(top.cells), defaultdict(list)
    top.spans = {}
    for column, runs in sorted(cells.items()):
        left, right = min(run.left for run in runs), max(run.right for run in runs)
        first, last = _find_covered_columns(left, right, columns, horizontal) or (column, column)
        top.cells[first] += runs
        if last > first:
            top.spans[first] = last - first + 1


def _find_covered_columns(
    left: float, right: float, columns: Columns, horizontal: Sequence[Box]
) -> tuple[int, int] | None:
    middle = (left + right) / 2
    width = columns[-1][1] - columns[0][0]
    for rule in horizontal:
        if rule.width < 0.9 * width and rule.left - NEAR <= left and right <= rule.right + NEAR:
            covered = [at for at, column in enumerate(columns) if rule.left - 6 <= sum(column) / 2 <= rule.right + 6]
            if covered:
                return covered[0], covered[-1]
    ranges = [(first, last) for first in range(len(columns)) for last in range(first, len(columns))]

    def distance(span: tuple[int, int]) -> float:
        first, last = columns[span[0]], columns[span[1]]
        return abs((first[0] + last[1]) / 2 - middle) + (0.0 if span[0] == span[1] else 1.5)

    best = min(ranges, key=distance)
    inside = (at for at, (start, end) in enumerate(columns) if start - NEAR <= left and right <= end + NEAR)
    if best[0] != best[1] and distance(best) > 4 and (at := next(inside, None)) is not None:
        return at, at
    return best if distance(best) < 12 else None


def build_table(rows: Sequence[Row], columns: int, header_rows: int | None = None) -> Table | None:
    """Return a table of rows without blank ones.

    The result is None if they are no table.

    Args:
        rows: the rows, top first.
        columns: number of columns.
        header_rows: number of rows with names; None to count those in bold letters.
    """
    filled = [row for row in rows if any(row.cells.values())]
    if len(filled) < 2 or columns < 2:
        return None
    texts = [tuple(cell_text(row.cells.get(column, [])) for column in range(columns)) for row in filled]
    spans = {
        (index, column): width for index, row in enumerate(filled) for column, width in row.spans.items() if width > 1
    }
    return Table(rows=texts, spans=spans, header_rows=count_bold_rows(filled) if header_rows is None else header_rows)


def cell_text(runs: Sequence[Run]) -> str:
    """Return the text of a cell."""
    return " ".join(tidy(join_text(line)) for line in group_lines(runs)).strip()


def count_bold_rows(rows: Sequence[Row]) -> int | None:
    """Return the number of leading rows in bold letters.

    A bold title within the table is none of them.

    The result is None if the letters are no evidence.
    """
    bold = [all(run.bold for runs in row.cells.values() for run in runs) for row in rows]
    count = next((index for index, is_bold in enumerate(bold) if not is_bold), len(bold))
    count = next((index for index in range(1, count) if list(rows[index].cells) == [0]), count)
    titles = sum(list(row.cells) == [0] for row in rows[count : count + 3])
    if not 0 < count <= 3 or count >= len(rows) or sum(bold[count : count + 3]) > titles:
        return None
    return count


def is_prose(table: Table) -> bool:
    """Return whether most cells are parts of sentences: text in columns."""
    cells = [len(cell.split()) for row in table.rows for cell in row if cell]
    return sum(words >= _SENTENCE_WORDS for words in cells) > _MOST * len(cells)


def fill_ratio(table: Table) -> float:
    """Return the share of the cells that have text."""
    return sum(bool(cell) for row in table.rows for cell in row) / (len(table.rows) * len(table.rows[0]))
