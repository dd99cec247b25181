"""Rows and columns of a PDF table, from the positions of its characters."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.pdf.graphics import Box
from kosmos_rag.parsing.pdf.lines import ONE_LINE, join_text, tidy
from kosmos_rag.parsing.pdf.text_layer import COLUMN_GAP, Run
from kosmos_rag.parsing.tables.table import Table

LEAST_ROWS = 3
"""Of a table whose rows show its columns."""
_SAME_ROW = 0.85
"""Sizes of the letters between lines that are too near to be of two rows: of cells that are centred vertically."""
LEADING = 1.45
"""Sizes of the letters between two lines of a cell at most."""
_SPANNING = 0.12
"""Share of the rows that may cross the gap between two columns."""
LEAST_FILLED = 0.4
"""Share of the cells of a table that have text."""
_SENTENCE_WORDS = 5
_NUMBER = re.compile(r"[-+(−–]?[$€£¥]?\s?[-+(−–]?[\d.,'%\s]*\d[\d.,'%)\s]*[$€£¥]?(?:\^\(?\w+\)?)?")  # noqa: RUF001
_AMOUNT = re.compile(
    r"(?!(?:19|20)\d\d$)(?:[A-Z]{3}\s|[$€£¥]\s?)?-?\d{1,3}(?:[,.' ]?\d{3})*(?:[.,]\d+)?(?:\s?(?:[^\W\d_]|[$€£¥%°])\S*)?"
)
_CURRENCY = re.compile(r"[$€£¥]")
_BLANK_NUMBER = re.compile(r"[-–—―－]|n/?a|unq", re.IGNORECASE)  # noqa: RUF001

Columns = Sequence[tuple[float, float]]
"""Left and right of each column."""

SplitWords = Callable[[Run], Sequence[Run]]
"""Returns the words of a run with their positions; none where these are not known."""


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
    allowed = max(1, int(len(lines) * _SPANNING)) if len(lines) > LEAST_ROWS else 0
    best: list[tuple[float, float]] = []
    for crossing in range(allowed + 1):
        columns = _find_covered_stretches(lines, crossing, size)
        if len(columns) > len(best):
            best = columns
    return _join_currencies(lines, best) if len(best) <= bounds.MAX_PAGE_COLUMNS else []


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
            if stretches and start - stretches[-1][1] < COLUMN_GAP * size:
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
    """Put each run of a line into the column that it overlaps most."""
    row = Row(baseline=line[0].baseline)
    for run, following in zip(line, [*line[1:], line[-1]], strict=True):
        # A currency sign is before its number, wherever it is.
        place = following if _CURRENCY.fullmatch(run.text.strip()) else run
        left, right = place.left, place.right
        # As `_overlap` has it, which would be called most often of all functions.
        overlaps = [(right if right < end else end) - (left if left > start else start) for start, end in columns]
        best = overlaps.index(max(overlaps))
        covered = [at for at, (start, end) in enumerate(columns) if overlaps[at] > 0.5 * (end - start)]
        if len(covered) > 1:
            best = covered[0]
            row.spans[best] = covered[-1] - covered[0] + 1
        row.cells[best].append(run)
    return row


def divide_runs(runs: Iterable[Run], columns: Columns, split_words: SplitWords) -> list[Run]:
    """Divide runs that are the cells of several columns, drawn as one text.

    Their words are in one column each, and they are numbers, or farther apart than the words of a cell.

    Args:
        runs: those of one row, or of a table.
        columns: left and right of each column.
        split_words: returns the words of a run with their positions.
    """
    divided: list[Run] = []
    for run in runs:
        inside = [at for at, column in enumerate(columns) if _overlap(run, column) > 0]
        parts = _divide(run, columns[inside[0] : inside[-1] + 1], split_words) if len(inside) > 1 else ()
        divided += parts or [run]
    return divided


def _divide(run: Run, columns: Columns, split_words: SplitWords) -> list[Run]:
    words = split_words(run)
    ends = [(right + left) / 2 for (_, right), (left, _) in pairwise(columns)]
    places = [bisect_right(ends, (word.left + word.right) / 2) for word in words]
    crosses = any(
        _overlap(word, column) > 0 for word, at in zip(words, places, strict=True) for column in _others(columns, at)
    )
    if crosses or len(set(places)) < 2 or places != sorted(places):
        return []
    parts = [[words[0]]]
    spaces: list[list[float]] = [[], []]
    """Within the parts, and between them."""
    for (before, at), (word, place) in pairwise(zip(words, places, strict=True)):
        spaces[place > at].append(word.left - before.right)
        if place > at:
            parts.append([word])
        else:
            parts[-1].append(word)
    cells = [
        run._replace(text=" ".join(word.text for word in part), left=part[0].left, right=part[-1].right, start=None)
        for part in parts
    ]
    are_values = all(is_value(cell.text) or is_blank_value(cell.text) for cell in cells[1:])
    are_apart = min(spaces[1]) > max(max(spaces[0], default=0.0), COLUMN_GAP * run.size)
    return cells if are_values or are_apart else []


def _others(columns: Columns, at: int) -> Columns:
    return [*columns[:at], *columns[at + 1 :]]


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
        and abs(up - down) <= ONE_LINE * size
        and up < LEADING * size
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


def is_amount(text: str) -> bool:
    """Return whether a text is a number, also with its unit; years are none."""
    return _AMOUNT.fullmatch(text.strip()) is not None


def is_blank_value(text: str) -> bool:
    """Return whether a text means that a number is missing."""
    return _BLANK_NUMBER.fullmatch(text.strip()) is not None


def are_values(texts: Sequence[str]) -> bool:
    """Return whether most cells of a column are numbers, or mean that one is missing."""
    values = sum(is_value(text) or is_blank_value(text) for text in texts)
    return 2 * values > len(texts)


def merge_rows(rows: Sequence[Row]) -> Row:
    """Return one row with the cells of several."""
    merged = Row(baseline=rows[0].baseline, spans=dict(rows[0].spans))
    for row in rows:
        for column, runs in row.cells.items():
            merged.cells[column] += runs
    return merged


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
    names = count_bold_rows(filled) if header_rows is None else header_rows
    if header_rows is None and names and names + 1 < len(filled):
        # Names over several columns are above the names of each.
        widest = max(filled[names - 1].spans.values(), default=0)
        names += 1 < widest < columns and all(texts[names][1:]) and not any(map(is_value, texts[names]))
    if names is None and columns == 2 and not any(is_value(row[1]) or is_blank_value(row[1]) for row in texts):
        # Words without names in letters of their own: the first column names the rows.
        return Table(rows=texts, spans=spans, header_rows=0, header_columns=1)
    return Table(rows=texts, spans=spans, header_rows=names)


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
    return 2 * sum(words >= _SENTENCE_WORDS for words in cells) > len(cells)


def fill_ratio(rows: Sequence[Sequence[str]]) -> float:
    """Return the share of the cells that have text."""
    return sum(bool(cell) for row in rows for cell in row) / (len(rows) * len(rows[0]))
