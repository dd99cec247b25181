"""What an answer is made of: sentences, code blocks, list items and table rows of a text, each with its span.

Headings are none of these: they name what stands below them and say nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kosmos_rag.records import UnitKind

_BLOCK = re.compile(
    r"""
      ^[ \t]*(?P<fence>`{3,}|~{3,})[^\n]*\n(?s:.*?)^[ \t]*(?P=fence)[ \t]*$  # fenced code
    | ^\#{1,6}[ \t][^\n]*$
    | ^[ \t]*\|[^\n]*\n[ \t]*\|[ \t:|-]*-[ \t:|-]*$                        # head of a table, and the rule below it
    | ^[ \t]*(?P<row>\|[^\n]*)$
    | ^[ \t]*(?P<item>(?:[-*+]|\d{1,3}[.)])[ \t]+[^\n]*(?:\n(?![ \t]*(?:[-*+]|\d{1,3}[.)])[ \t])[ \t]+\S[^\n]*)*)
    | ^(?P<prose>[^\n]*\S[^\n]*(?:\n(?![ \t]*(?:[-*+|]|\d{1,3}[.)][ \t]|`{3}|~{3}|\#{1,6}[ \t]))[^\n]*\S[^\n]*)*)
    """,
    re.VERBOSE | re.MULTILINE,
)
_END = re.compile(r"[.!?…][\"'”’»)\]*_`]*\s+(?=\S)|[。！？]")  # noqa: RUF001 — the stops of Chinese and Japanese
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[^\W\d]|(?:\w\.)+\w|[cC]f|[dD]r|[mM]rs?|[mM]s|[nN]o|[pP]p|St|approx|vs|\d{1,3})$"
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
    for stop in _END.finditer(text, start, end):
        following = text[stop.end() : stop.end() + 1]
        said = text[start : stop.end()]
        if stop.end() == end or following.islower() or _LABEL.fullmatch(said):
            continue
        if not _ABBREVIATION.search(text[start : stop.start()]):
            yield start, stop.end()
            start = stop.end()
    if not text[start:end].isspace():
        yield start, end


def _unit(text: str, kind: UnitKind, start: int, end: int) -> Unit:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    piece = piece.strip()
    return Unit(text=piece, kind=kind, start=start, end=start + len(piece))
