"""Descriptions of real pages, written by hand from their pictures.

A file of `pages/` describes pages of the PDF of the same name: a list of elements for each page, in reading order.
The folders of `pages/` have pages that were described after rules had been chosen on those before them.

    h    a heading
    p    a paragraph, whole or as `its beginning … its end`
    i    a line that begins on a line of its own: an item of a list, an address
    c    a paragraph that continues from the page before
    t    a table: `names` and some of its `rows`; `with_text` where text is between its rows
    kv   labels and their values
    any  words of a figure, each in one piece, in any order; those that are only pixels of a picture are left out
    f    furniture: running lines and page numbers, which may be left out
    maybe  headings that may be found or not
    tables  true where a table is on the page that is not described
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

PAGES = Path(__file__).parent / "pages"
_ELLIPSIS = " … "


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """A heading, paragraph or line of a page."""

    kind: str
    """`h`, `p`, `i` or `c`."""
    begin: str
    end: str
    """Empty where `begin` is the whole passage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DescribedTable:
    """Rows of a table under the names of its columns."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    with_text: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """Labels of a form with their values."""

    pairs: Sequence[tuple[str, str]]


@dataclass(kw_only=True, slots=True)
class DescribedPage:
    """What a person reads on a page."""

    file: str
    number: int
    elements: list[Passage | DescribedTable | Labels] = field(default_factory=list)
    """In reading order."""
    words: list[str] = field(default_factory=list)
    """Of figures."""
    optional_headings: list[str] = field(default_factory=list)
    has_other_tables: bool = False


def is_held_out(file: str) -> bool:
    """Return whether a file belongs to the half that no rule is developed on."""
    return hashlib.sha256(file.encode()).digest()[0] % 2 == 1


Part = Literal["first", "second", "third", "fourth", "fifth", "sixth", "held-out"]
PARTS: tuple[Part, ...] = get_args(Part)
_FOLDERS = ("second", "third", "fourth", "fifth", "sixth")
"""Parts with a folder of their own."""


def read_descriptions(part: Part) -> list[DescribedPage]:
    """Return the described pages of one part."""
    folder = PAGES / part if part in _FOLDERS else PAGES
    pages: list[DescribedPage] = []
    for path in sorted(folder.glob("*.yaml")):
        file = f"{path.stem}.pdf"
        if part in _FOLDERS or is_held_out(file) == (part == "held-out"):
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            pages += (_page(file, number, elements) for number, elements in sorted(content.items()))
    return pages


def _page(file: str, number: int, elements: Sequence[Mapping[str, Any]]) -> DescribedPage:
    page = DescribedPage(file=file, number=number)
    for element in elements:
        kind, value = next(iter(element.items()))
        if kind == "any":
            page.words += map(str, value)
        elif kind == "maybe":
            page.optional_headings += map(str, value)
        elif kind == "tables":
            page.has_other_tables = True
        elif kind != "f":
            page.elements += _elements(kind, value, element)
    return page


def _elements(kind: str, value: Any, element: Mapping[str, Any]) -> Iterator[Passage | DescribedTable | Labels]:
    if kind == "t":
        rows = [[str(cell) for cell in row] for row in element["rows"]]
        yield DescribedTable(
            names=[str(name) for name in element["names"]], rows=rows, with_text="with_text" in element
        )
    elif kind == "kv":
        yield Labels(pairs=[(str(label), str(text)) for label, text in value])
    else:
        begin, _, end = str(value).partition(_ELLIPSIS)
        yield Passage(kind=kind, begin=begin, end=end)
