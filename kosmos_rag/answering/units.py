"""What an answer is made of: sentences, code blocks, list items and table rows of a text, each with its span.

Headings are none of these: they name what stands below them and say nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kosmos_rag.records import UnitKind
from kosmos_rag.sentences import sentences

_BLOCK = re.compile(
    r"""
      ^[ \t]*(?P<fence>`{3,}+|~{3,}+)[^\n]*\n(?s:.*?)^[ \t]*(?P=fence)[ \t]*$  # fenced code
    | ^\#{1,6}[ \t][^\n]*$
    | ^[ \t]*\|[^\n]*\n[ \t]*\|[ \t:|-]*-[ \t:|-]*$                        # head of a table, and the rule below it
    | ^[ \t]*(?P<row>\|[^\n]*)$
    | ^[ \t]*(?P<item>(?:[-*+]|\d{1,3}[.)])[ \t]+[^\n]*(?:\n(?![ \t]*(?:[-*+]|\d{1,3}[.)])[ \t])[ \t]+\S[^\n]*)*)
    | ^(?P<prose>[^\n]*\S[^\n]*(?:\n(?![ \t]*(?:[-*+|]|\d{1,3}[.)][ \t]|`{3}|~{3}|\#{1,6}[ \t]))[^\n]*\S[^\n]*)*)
    """,
    re.VERBOSE | re.MULTILINE,
)
_LABEL = re.compile(r"\s*\*\*[^*\n]+\*\*\s*")
"""`**Symptoms.**` names what the sentence after it says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A piece of a text that says one thing. `text` is the very characters between `start` and `end`."""

    text: str
    kind: UnitKind
    start: int
    end: int


def units(text: str) -> Iterator[Unit]:
    """Yield the units of a text in order; none is blank, and none has white space around it."""
    for block in _BLOCK.finditer(text):
        if block["fence"]:
            yield _unit(text, "code", *block.span())
        elif block["row"]:
            yield _unit(text, "row", *block.span("row"))
        elif block["item"]:
            yield _unit(text, "item", *block.span("item"))
        elif block["prose"]:
            for start, end in _sentences(text, *block.span("prose")):
                yield _unit(text, "sentence", start, end)


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for _, stop in sentences(text, (start, end), by_lines=False):
        if stop == end or not _LABEL.fullmatch(text, start, stop):
            yield start, stop
            start = stop


def _unit(text: str, kind: UnitKind, start: int, end: int) -> Unit:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    piece = piece.strip()
    return Unit(text=piece, kind=kind, start=start, end=start + len(piece))
