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


def parse_rtf(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a Rich Text document.

    Raises:
        ParseError: `too_large`.
    """
    from striprtf.striprtf import rtf_to_text

    composition = Composition(limits)
    source = "".join(_drop_hidden(data.decode("latin-1")))
    lines = rtf_to_text(source, errors="replace").split("\n")
    for is_row, group in groupby(lines, _is_row):
        if is_row:
            composition.add_table(_read_table(group))
        else:
            for line in group:
                composition.add_block(line)
    return composition.build(media_types.RTF, None)


def _read_table(lines: Iterator[str]) -> Table:
    table = TableBuilder()
    above: list[str] = []
    for line in lines:
        texts = [collapse_whitespace(cell) for cell in line[:-1].split("|")]
        for column, text in enumerate(texts):
            if text == _CONTINUED:
                texts[column] = shorten_repetition(above[column]) if column < len(above) else ""
        table.add_row([Cell(text=text) for text in texts])
        above = texts
    return table.build()


def _drop_hidden(source: str) -> Iterator[str]:
    """Yield the tokens of a file without text that is not shown.

    A cell that continues the one above it has a mark.
    """
    hidden: list[frozenset[str]] = [frozenset()]
    marks = _CellMarks()
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
        yield marks.find(word) + token[0]


class _CellMarks:
    """Follows the definitions of rows."""

    def __init__(self) -> None:
        self._cells: list[bool] = []
        self._is_continued = False
        self._column = 0

    def find(self, word: str | None) -> str:
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
        elif word == "cell":
            self._column += 1
            return _CONTINUED if any(self._cells[self._column - 1 : self._column]) else ""
        return ""


def _is_row(line: str) -> bool:
    """Return whether a line is a row: striprtf ends cells with `|`."""
    return line.endswith("|")
