"""Tables and boxes between the ruled lines of a PDF page."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.pdf.cells import (
    LEADING,
    LEAST_FILLED,
    LEAST_ROWS,
    Row,
    SplitWords,
    build_table,
    divide_runs,
    fill_ratio,
    find_columns,
    group_lines,
    is_prose,
    is_value,
    join_continued,
)
from kosmos_rag.parsing.pdf.graphics import NEAR
from kosmos_rag.parsing.pdf.lattices import Lattice
from kosmos_rag.parsing.pdf.lines import ONE_LINE, join_text, merge_scripts
from kosmos_rag.parsing.pdf.text_layer import MIDDLE, Run
from kosmos_rag.parsing.tables.table import Table


class GridArea(NamedTuple):
    """An area between ruled lines: rows and columns of the grid, half open."""

    top: int
    bottom: int
    left: int
    right: int


class Grid:
    """Areas between ruled lines in both directions; a missing line joins two."""

    def __init__(self, lattice: Lattice, edges: Sequence[float] = ()) -> None:
        """Find the areas.

        Args:
            lattice: the ruled lines.
            edges: places between columns that have no ruled line.
        """
        box = lattice.box
        self._xs = _cluster([box.left, box.right, *(rule.left for rule in lattice.vertical), *edges])
        self._ys = _cluster([box.bottom, box.top, *(rule.bottom for rule in lattice.horizontal)])[::-1]
        self._walls = _group(self._xs, [(rule.left, rule.bottom, rule.top) for rule in lattice.vertical])
        self._floors = _group(self._ys[::-1], [(rule.bottom, rule.left, rule.right) for rule in lattice.horizontal])
        self._texts: dict[GridArea, list[Run]] = {}
        """Those of the table."""
        self._open: set[int] = set()
        """Columns that a row of the table divides from those before, though no ruled line does."""
        self.is_readable = max(len(self._xs), len(self._ys)) <= bounds.MAX_GRID_LINES
        self.faces = self._find_faces() if self.is_readable else []

    @property
    def columns(self) -> int:
        """The number of columns."""
        return len(self._xs) - 1

    @property
    def edges(self) -> list[tuple[float, float]]:
        """Left and right of each column."""
        return list(pairwise(self._xs))

    def _find_faces(self) -> list[GridArea]:
        count = len(self._ys) - 1
        parents = list(range(count * self.columns))

        def find(cell: int) -> int:
            while parents[cell] != cell:
                parents[cell] = parents[parents[cell]]
                cell = parents[cell]
            return cell

        for row in range(count):
            middle = (self._ys[row] + self._ys[row + 1]) / 2
            for column in range(self.columns):
                cell = row * self.columns + column
                if column and not _is_crossed(self._walls[column], middle):
                    parents[find(cell)] = find(cell - 1)
                if row and not _is_crossed(self._floors[count - row], (self._xs[column] + self._xs[column + 1]) / 2):
                    parents[find(cell)] = find(cell - self.columns)
        hulls: dict[int, GridArea] = {}
        for row in range(count):
            for column in range(self.columns):
                root = find(row * self.columns + column)
                hull = hulls.get(root, GridArea(row, row + 1, column, column + 1))
                hulls[root] = GridArea(hull.top, row + 1, min(hull.left, column), max(hull.right, column + 1))
        return list(hulls.values())

    def build_table(self, runs: Sequence[Run]) -> Table | None:
        """Return the table of the runs between the lines; None if they make none."""
        if len(self.faces) < 2 or self.columns < 2 or not runs:
            return None
        texts = self._texts = self._assign(runs)
        self._open = self._find_open(texts)
        rows = list(self._build_rows(texts))
        table = build_table(rows, self.columns)
        if table is None or _is_drawing(table):
            return None
        filled = [face for face in self.faces if texts.get(face)]
        has_rows = len({face.top for face in filled}) > 1 or len(rows) > 2
        return (
            table
            if has_rows
            and len({face.left for face in filled}) > 1
            and not (len(filled) < len(rows) and is_prose(table))
            else None
        )

    @property
    def is_sparse(self) -> bool:
        """Whether most cells, without titles, share an area with others, as in a form."""
        faces = [face for face in self.faces if face.right - face.left < self.columns]
        cells = sum((face.bottom - face.top) * (face.right - face.left) for face in faces)
        return 2 * sum(map(self._count_cells, faces)) < cells

    @property
    def reading_order(self) -> Iterator[GridArea]:
        """The areas as they are read."""
        return _order(self.faces)

    @cached_property
    def face_of(self) -> dict[tuple[int, int], GridArea]:
        """The area of each row and column."""
        return {
            (row, column): face
            for face in self.faces
            for row in range(face.top, face.bottom)
            for column in range(face.left, face.right)
        }

    def find_face(self, x: float, y: float) -> GridArea | None:
        """Return the area that a point is in."""
        row = len(self._ys) - 1 - bisect_right(self._ys[::-1], y)
        return self.face_of.get((row, bisect_right(self._xs, x) - 1))

    def is_form(self, runs: Sequence[Run]) -> bool:
        """Return whether most rows have boxes with words and room to write below them."""
        texts = self._assign(runs) if self.faces else {}
        rows: dict[int, list[bool]] = defaultdict(list)
        for face, runs in texts.items():
            highest, lowest = (choose(runs, key=lambda run: run.baseline) for choose in (max, min))
            above = max(0.0, self._ys[face.top] - highest.baseline - highest.size)
            below = lowest.baseline - self._ys[face.bottom]
            rows[face.top].append(below - above > lowest.size and not is_value(join_text(runs)))
        return bool(rows) and 2 * sum(map(all, rows.values())) > len(rows)

    def divide_line(self, runs: Sequence[Run], split_words: SplitWords) -> list[Run]:
        """Return the cells of a line, between ruled lines at its height and columns."""
        height = runs[0].baseline + MIDDLE * runs[0].size
        walls = [x for x, walls in zip(self._xs, self._walls, strict=True) if _is_crossed(walls, height)]
        pieces = [piece for run in runs for piece in _divide_run(run, walls, split_words)]
        areas = [list(group) for _, group in groupby(pieces, lambda run: bisect_right(walls, _middle(run)))]
        return divide_runs((run for area in areas for run in merge_scripts(area)), self.edges, split_words)

    def find_hidden_edges(self, runs: Sequence[Run]) -> list[float]:
        """Return the places between columns of numbers that share a column of the grid."""
        edges: list[float] = []
        for left, right in self.edges:
            lines = group_lines(run for run in runs if left < _middle(run) < right)
            several = [line for line in lines if len(line) > 1 and all(is_value(run.text) for run in line)]
            if len(several) >= LEAST_ROWS and 2 * len(several) > len(lines):
                edges += [(end + start) / 2 for (_, end), (start, _) in pairwise(find_columns(several))]
        return edges

    def _count_cells(self, face: GridArea) -> int:
        """Return how many cells the texts of an area show in it."""
        is_divided = face.top > 0 and self._open.issuperset(range(face.left + 1, face.right))
        return (face.right - face.left if is_divided else 1) * max(1, len(self._level_rows(face)))

    def _find_open(self, texts: dict[GridArea, list[Run]]) -> set[int]:
        """Return the columns that several rows below the first one divide from those before."""
        sides: Counter[int] = Counter()
        across: Counter[int] = Counter()
        for face, runs in texts.items():
            for line in group_lines(runs) if face.top and face.right > face.left + 1 else ():
                for column in range(face.left + 1, face.right):
                    edge = self._xs[column]
                    across[column] += any(run.left < edge - NEAR and edge + NEAR < run.right for run in line)
                    sides[column] += line[0].right < edge + NEAR and edge - NEAR < line[-1].left
        return {column for column, count in sides.items() if count > max(1, across[column])}

    def _assign(self, runs: Sequence[Run]) -> dict[GridArea, list[Run]]:
        texts: dict[GridArea, list[Run]] = defaultdict(list)
        for run in runs:
            column = min(max(bisect_right(self._xs, _middle(run)) - 1, 0), self.columns - 1)
            texts[self.face_of[self._find_row(run), column]].append(run)
        return texts

    def _find_row(self, run: Run) -> int:
        above = bisect_right(self._ys[::-1], run.baseline + MIDDLE * run.size) - 1
        return min(max(len(self._ys) - 2 - above, 0), len(self._ys) - 2)

    def _build_rows(self, texts: dict[GridArea, list[Run]]) -> Iterator[Row]:
        level_rows = {face: self._level_rows(face) for face in self.faces}
        for index in range(len(self._ys) - 1):
            faces = sorted((face for face in self.faces if face.top <= index < face.bottom), key=lambda face: face.left)
            first_texts = {
                column: runs
                for face in faces
                if face.bottom == face.top + 1
                for column, runs in self._divide_face(face, texts.get(face, [])).items()
            }
            others = {
                face.left: level_rows[face].get(index, []) if level_rows[face] else texts.get(face, [])
                for face in faces
                if face.left not in first_texts
            }
            spans = {
                face.left: face.right - face.left
                for face in faces
                if face.right > face.left + 1 and face.left + 1 not in first_texts
            }
            for row in self._split(index, first_texts):
                row.cells.update({column: runs for column, runs in others.items() if runs})
                row.spans = spans
                yield row

    def _divide_face(self, face: GridArea, runs: list[Run]) -> dict[int, list[Run]]:
        """Return the texts of an area by column.

        They are cells below names where none of them crosses the line between two columns. On top of a table they are
        names if each column has one.
        """
        columns: dict[int, list[Run]] = {column: [] for column in range(face.left, face.right)}
        is_open = not self._open.isdisjoint(range(face.left + 1, face.right))
        may_divide = len(runs) == len(columns) >= LEAST_ROWS if not face.top else is_open or len(group_lines(runs)) > 1
        if len(columns) < 2 or not may_divide:
            return {face.left: runs}
        for run in runs:
            column = max(0, min(bisect_right(self._xs, run.left + NEAR), face.right) - 1)
            if run.right > self._xs[column + 1] + NEAR:
                return {face.left: runs}
            columns[column].append(run)
        least = 2 if face.top else len(columns)
        return columns if sum(map(bool, columns.values())) >= least else {face.left: runs}

    def _level_rows(self, face: GridArea) -> dict[int, list[Run]]:
        """Return the texts of each row of an area that no line divides.

        Most of its lines are level with a text of another area, in a row of their own.
        """
        runs = self._texts.get(face, [])
        rows: dict[int, list[list[Run]]] = defaultdict(list)
        for line in group_lines(runs) if face.bottom - face.top >= LEAST_ROWS <= len(runs) else ():
            rows[self._find_row(line[0])].append(line)
        level = [row for row, lines in rows.items() if self._are_level(lines, face, row)]
        if len(level) < LEAST_ROWS or 2 * len(level) <= len(rows):
            return {}
        return {row: [run for line in lines for run in line] for row, lines in rows.items()}

    def _are_level(self, lines: Sequence[Sequence[Run]], face: GridArea, row: int) -> bool:
        """Return whether a row has one line, level with a text of another area.

        One of both is a number.
        """
        first = lines[0][0]
        has_number = is_value(join_text(lines[0]))
        others = (self._texts.get(self.face_of[row, column], ()) for column in range(self.columns))
        return len(lines) == 1 and any(
            abs(run.baseline - first.baseline) <= ONE_LINE * first.size and (has_number or is_value(run.text))
            for column, runs in enumerate(others)
            if not face.left <= column < face.right
            for run in runs
        )

    def _split(self, index: int, cells: dict[int, list[Run]]) -> list[Row]:
        """Return the lines between two ruled lines as rows; one row where they are its cells."""
        lines = group_lines(run for runs in cells.values() for run in runs)
        if len(lines) > 1 and self._are_rows(cells, lines):
            rows = [Row(baseline=line[0].baseline) for line in lines]
            for column, runs in cells.items():
                for run in runs:
                    min(rows, key=lambda row: abs(row.baseline - run.baseline)).cells[column].append(run)
            return join_continued(rows)
        row = Row(baseline=self._ys[index])
        row.cells.update(cells)
        return [row]

    def _are_rows(self, cells: dict[int, list[Run]], lines: Sequence[Sequence[Run]]) -> bool:
        """Return whether lines between two ruled lines are rows.

        Two columns have many, or numbers on each.
        """
        columns = sorted((group_lines(runs) for runs in cells.values() if runs), key=len, reverse=True)
        if len(columns) < 2 or len(columns[1]) < 2:
            return False
        if any(all(is_value(join_text(line)) for line in column) for column in columns if len(column) > 1):
            return True
        is_spaced = all(
            above[0].baseline - below[0].baseline > LEADING * above[0].size for above, below in pairwise(lines)
        )
        is_whole = len(self._ys) <= 4
        return is_whole and (is_spaced or len(columns[1]) >= max(3, len(columns[0]) / 2))


def _middle(run: Run) -> float:
    return (run.left + run.right) / 2


def _divide_run(run: Run, walls: Sequence[float], split_words: SplitWords) -> list[Run]:
    """Return the parts of a run between ruled lines that cross none of its words."""
    if bisect_right(walls, run.left + NEAR) == bisect_right(walls, run.right - NEAR):
        return [run]
    words = split_words(run)
    if not words or any(word.left + NEAR < wall < word.right - NEAR for word in words for wall in walls):
        return [run]
    parts = (list(part) for _, part in groupby(words, lambda word: bisect_right(walls, _middle(word))))
    return [
        run._replace(text=" ".join(word.text for word in part), left=part[0].left, right=part[-1].right, start=None)
        for part in parts
    ]


def _order(faces: Sequence[GridArea]) -> Iterator[GridArea]:
    """Yield areas in reading order.

    They are cut between rows where no area crosses, else between columns. Level columns are read
    row by row.
    """
    rows = _separate(faces, "top", "bottom")
    columns: list[list[GridArea]] = []
    for column in _separate(faces, "left", "right") if len(rows) == 1 else ():
        if columns and {face.top for face in columns[-1]} == {face.top for face in column}:
            columns[-1] += column
        else:
            columns.append(column)
    groups = rows if len(rows) > 1 else columns
    if len(groups) == 1:
        yield from sorted(faces)
    else:
        for group in groups:
            yield from _order(group)


def _separate(faces: Sequence[GridArea], first: str, end: str) -> list[list[GridArea]]:
    """Return the groups of areas between which no other one is, along one direction."""
    groups: list[list[GridArea]] = []
    reach = 0
    for face in sorted(faces, key=attrgetter(first)):
        if not groups or getattr(face, first) >= reach:
            groups.append([])
        groups[-1].append(face)
        reach = max(reach, getattr(face, end))
    return groups


def _cluster(values: Sequence[float]) -> list[float]:
    """Return one value for each group of close values, in order."""
    clusters: list[float] = []
    for value in sorted(values):
        if not clusters or value - clusters[-1] > NEAR:
            clusters.append(value)
    return clusters


def _group(places: Sequence[float], lines: Sequence[tuple[float, float, float]]) -> list[list[tuple[float, float]]]:
    """Return the stretches of the lines at each place; `lines` have place, start and end."""
    groups: list[list[tuple[float, float]]] = [[] for _ in places]
    for at, start, end in lines:
        groups[max(0, bisect_right(places, at + 1e-6) - 1)].append((start, end))
    return groups


def _is_crossed(stretches: Sequence[tuple[float, float]], at: float) -> bool:
    return any(start <= at <= end for start, end in stretches)


def _is_drawing(table: Table) -> bool:
    """Return whether cells are the boxes of a drawing.

    Few are filled, and none next to another. Rows with one text at most may be blank ones of a form.
    """
    rows = [row for row in table.rows if sum(map(bool, row)) > 1]
    if len(rows) < LEAST_ROWS:
        rows = list(table.rows)
    return fill_ratio(rows) < LEAST_FILLED or not any(
        before and after for row in rows for before, after in pairwise(row)
    )
