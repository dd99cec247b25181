"""Places of a text in its file, as a person finds them.

Cells of a sheet, paragraphs below a heading, the anchor of a web page, the attachment of a mail. Pages and times have
fields and headings of their own.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kosmos_rag.core.types.docstrings import Described

_CELLS = re.compile(r"([A-Z]+)(\d+)(?::([A-Z]+)(\d+))?")
_PLAIN_SHEET = re.compile(r"[^\W\d]\w*")
"""The name of a sheet that formulas write without quotes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place(Described):
    """Where a text is in its file.

    A field is None where the format has no such place.
    """

    attachment: str | None = None
    """Name of the mail's attachment; `outer.eml / inner.xlsx` of one in an attached mail."""
    sheet: str | None = None
    cells: str | None = None
    """Cells of the sheet: `B12:D12`."""
    paragraphs: tuple[int, int] | None = None
    """First and last paragraph below the heading, from 1."""
    anchor: str | None = None
    """Identifier of the nearest heading of a web page: the fragment of a link to it."""

    @property
    def reference(self) -> str:
        """The place in short, such as `Sales!B12:D12`.

        The result is empty for an anchor.
        """
        cells = f"{_quote_sheet(self.sheet)}!{self.cells}" if self.sheet and self.cells else self.cells or self.sheet
        return " | ".join(filter(None, (self.attachment, cells, self._paragraphs)))

    @property
    def words(self) -> str:
        """The place in words, such as `sheet Sales, cells B12:D12`.

        The result is empty for an anchor.
        """
        parts = (("attachment", self.attachment), ("sheet", self.sheet), ("cells", self.cells))
        return ", ".join([*(f"{kind} {name}" for kind, name in parts if name), *filter(None, [self._paragraphs])])

    @property
    def _paragraphs(self) -> str:
        if self.paragraphs is None:
            return ""
        first, last = self.paragraphs
        return f"paragraph {first}" if first == last else f"paragraphs {first} to {last}"


class PlaceSpan(NamedTuple):
    """The place of a stretch of a document's text."""

    start: int
    end: int
    attachment: str | None = None
    sheet: str | None = None
    cells: str | None = None
    anchor: str | None = None
    first_paragraph: int | None = None
    last_paragraph: int | None = None

    @property
    def place(self) -> Place:
        """The place without its span."""
        _, _, attachment, sheet, cells, anchor, first, last = self
        paragraphs = None if first is None else (first, last or first)
        return Place(attachment=attachment, sheet=sheet, cells=cells, paragraphs=paragraphs, anchor=anchor)


def spans_within(spans: Sequence[PlaceSpan], start: int, end: int) -> list[PlaceSpan]:
    """Return the spans with text between two offsets.

    Args:
        spans: In order; none overlaps another.
        start: The first offset.
        end: One after the last offset.
    """
    first = bisect_right(spans, start, key=lambda span: span.end)
    last = first
    while last < len(spans) and spans[last].start < end:
        last += 1
    return list(spans[first:last])


def find_place(spans: Sequence[PlaceSpan], start: int, end: int) -> Place | None:
    """Return the place of a text; None where it has none.

    Cells are the rectangle around all of them, paragraphs those from the first to the last. What follows in another
    attachment, in another sheet or below another heading does not belong to it.

    Args:
        spans: In order; none overlaps another.
        start: Offset of the text.
        end: One after its last offset.
    """
    if not spans:  # most formats: twenty passages of a search ask twice each
        return None
    within = spans_within(spans, start, end)
    place = within.pop(0).place if within and within[0].start <= start else Place()
    for span in within:
        joined = _join(place, span.place)
        if joined is None:
            break
        place = joined
    return None if place == Place() else place


def _join(place: Place, following: Place) -> Place | None:
    """Return the place of both; None where the second is elsewhere."""
    if place.attachment != following.attachment or (following.sheet and place.sheet not in (None, following.sheet)):
        return None
    paragraphs = place.paragraphs or following.paragraphs
    if paragraphs and following.paragraphs:
        if place.paragraphs and following.paragraphs[0] <= paragraphs[1]:  # another heading: counting begins again
            return None
        paragraphs = (paragraphs[0], following.paragraphs[1])
    return replace(
        place,
        sheet=following.sheet,
        cells=_enclose_cells(place.cells, following.cells),
        paragraphs=paragraphs,
        anchor=place.anchor or following.anchor,
    )


def cell_range(top: int, left: int, bottom: int, right: int) -> str:
    """Return the name of a rectangle of cells, such as `B12:D12`.

    Args:
        top: The first row, from 1.
        left: The first column, from 1.
        bottom: The last row.
        right: The last column.
    """
    first, last = f"{_letters(left)}{top}", f"{_letters(right)}{bottom}"
    return first if first == last else f"{first}:{last}"


def _enclose_cells(first: str | None, second: str | None) -> str | None:
    if not first or not second:
        return first or second
    corners = [corner for cells in (first, second) for corner in _corners(cells)]
    rows, columns = zip(*corners, strict=True) if corners else ((), ())
    return cell_range(min(rows), min(columns), max(rows), max(columns)) if rows else first


def _corners(cells: str) -> list[tuple[int, int]]:
    match = _CELLS.fullmatch(cells)
    if match is None:
        return []
    left, top, right, bottom = match.groups()
    return [(int(top), _column(left)), (int(bottom or top), _column(right or left))]


def _letters(column: int) -> str:
    letters = ""
    while column > 0:
        column, letter = divmod(column - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters


def _column(letters: str) -> int:
    column = 0
    for letter in letters:
        column = 26 * column + ord(letter) - ord("A") + 1
    return column


def _quote_sheet(sheet: str) -> str:
    return sheet if _PLAIN_SHEET.fullmatch(sheet) else "'" + sheet.replace("'", "''") + "'"
