"""Parse RTF with striprtf: paragraphs and tables."""

import re
from collections.abc import Iterator
from itertools import groupby

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.builder import Cell, TableBuilder, shorten_repetition
from kosmos_rag.parsing.tables.table import Table, collapse_whitespace

_TOKEN = re.compile(
    r"[{}]|\\(?P<word>[a-z]{1,32})(?P<number>-?\d{1,10})?[ ]?|\\'[0-9a-fA-F]{2}|\\[^a-z]|[^\\{}\r\n]+|[\r\n]+"
)
_TEXT = frozenset({"emdash", "endash", "lquote", "rquote", "ldblquote", "rdblquote", "bullet", "tab", "line", "u"})
"""Words that are characters."""
_NOT_SHOWN = frozenset({"strike", "striked", "v"})
"""Text that is struck through or hidden, until the word with a 0."""
_CONTINUED = "\x1a"
"""A cell that continues the one above it."""
_NESTED, _NESTED_CELL, _NESTED_ROW = "\ufdd1", "\ufdd2", "\ufdd3"
"""Begin a paragraph of a table in a cell, and end its cells and rows; no characters of any text."""
_NESTED_MARKS = str.maketrans({_NESTED: "", _NESTED_CELL: " ", _NESTED_ROW: " "})
_REPLACED = {"par": " ", "nestcell": _NESTED_CELL, "nonesttables": r"\*\nonesttables "}
"""Words of cells, and what replaces them: the last one is for readers without tables in cells."""


def parse_rtf(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a Rich Text document.

    Raises:
        ParseError: `too_large`.
    """
    from striprtf.striprtf import rtf_to_text

    composition = Composition(limits)
    source = "".join(map(_CellMarks().mark, _find_shown(data.decode("latin-1"))))
    lines = rtf_to_text(source, errors="replace").split("\n")
    for is_row, group in groupby(lines, _is_row):
        if is_row:
            for table in _read_tables(group):
                composition.add_table(table)
        else:
            for line in group:
                composition.add_block(line.translate(_NESTED_MARKS))
    return composition.build(media_types.RTF, None)


def _read_tables(lines: Iterator[str]) -> list[Table]:
    """Return the table of some rows, then those in its cells.

    These are under the first text of their row.
    """
    table = TableBuilder()
    inner: list[Table] = []
    above: list[str] = []
    for line in lines:
        texts = []
        for cell in line[:-1].split("|"):
            before, mark, rest = cell.partition(_NESTED)
            nested, _, after = rest.rpartition(_NESTED_ROW)
            texts.append(collapse_whitespace(f"{before} {after}"))
            if mark:
                inner.append(_read_nested(nested, shorten_repetition(texts[0])))
        for column, text in enumerate(texts):
            if text == _CONTINUED:
                texts[column] = shorten_repetition(above[column]) if column < len(above) else ""
        table.add_row([Cell(text=text) for text in texts])
        above = texts
    return [table.build(), *inner]


def _read_nested(text: str, caption: str) -> Table:
    table = TableBuilder()
    for row in text.replace(_NESTED, " ").split(_NESTED_ROW):
        table.add_row([Cell(text=collapse_whitespace(cell)) for cell in row.split(_NESTED_CELL)[:-1]])
    return table.build(caption=caption)


def _find_shown(source: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of a file without text that is not shown."""
    hidden: list[frozenset[str]] = [frozenset()]
    for token in _TOKEN.finditer(source):
        word = token["word"]
        if token[0] == "{":
            hidden.append(hidden[-1])
        elif token[0] == "}":
            del hidden[max(1, len(hidden) - 1) :]
        elif word == "plain":
            hidden[-1] = frozenset()
        elif word in _NOT_SHOWN:
            hidden[-1] = hidden[-1] - {word} if token["number"] == "0" else hidden[-1] | {word}
        elif hidden[-1] and (word is None or word in _TEXT):
            continue
        yield token


class _CellMarks:
    """Follows the tables of a file, and marks what striprtf does not know.

    Cells that continue the one above them, paragraphs of a cell, and tables in cells.
    """

    def __init__(self) -> None:
        self._cells: list[bool] = []
        self._is_continued = False
        self._column = 0
        self._is_in_cell = False
        self._outer_cells: list[bool] = []
        """The same of the groups around, as they continue; none of them is in a cell after its row."""
        self._depth = 0
        self._row_depth = 0
        """Of the group that ends a row in a cell; 0 for none."""

    def mark(self, token: re.Match[str]) -> str:
        """Return a token with its marks, or what replaces it."""
        word = token["word"]
        if token[0] in "{}":
            return token[0] + self._follow_group(1 if token[0] == "{" else -1)
        if word in _REPLACED and (word != "par" or self._is_in_cell):
            return _REPLACED[word]
        if word == "nesttableprops":
            self._row_depth = self._depth
        elif word in ("pard", "intbl"):
            self._is_in_cell = word == "intbl"
        elif word == "itap" and int(token["number"] or 0) > 1:
            return token[0] + _NESTED
        return token[0] if self._row_depth else self._find(word) + token[0]

    def _follow_group(self, step: int) -> str:
        is_row = step < 0 and 0 < self._depth == self._row_depth
        self._row_depth = 0 if is_row else self._row_depth
        self._depth = max(0, self._depth + step)
        if step > 0:
            self._outer_cells.append(self._is_in_cell)
        else:
            self._is_in_cell = self._outer_cells.pop() if self._outer_cells else False
        return _NESTED_ROW if is_row else ""

    def _find(self, word: str | None) -> str:
        """Return the mark of a cell that ends and continues the one above it."""
        if word == "trowd":
            self._cells = []
        elif word == "clvmrg":
            self._is_continued = True
        elif word == "cellx":
            self._cells.append(self._is_continued)
            self._is_continued = False
        elif word == "row":
            self._column = 0
            self._is_in_cell = False
            self._outer_cells.clear()
        elif word == "cell":
            self._column += 1
            return _CONTINUED if any(self._cells[self._column - 1 : self._column]) else ""
        return ""


def _is_row(line: str) -> bool:
    """Return whether a line is a row: striprtf ends cells with `|`."""
    return line.endswith("|")
