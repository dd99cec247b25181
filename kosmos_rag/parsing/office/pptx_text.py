"""Read the paragraphs of PowerPoint: numbers, superscripts and equations."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from kosmos_rag.parsing.numbering import format_number
from kosmos_rag.parsing.office.omml import write_equation
from kosmos_rag.parsing.scripts import mark_script

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_EQUATION = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
_CHOICE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Choice"
_RUNS = frozenset({f"{_A}r", f"{_A}fld"})
_NUMBER = re.compile(r"(arabic|alphaLc|alphaUc|romanLc|romanUc)(Period|ParenR|ParenBoth|Plain)")
_STYLES = {"arabic": "1", "alphaLc": "a", "alphaUc": "A", "romanLc": "i", "romanUc": "I"}
_FORMS = {"Period": "{}. ", "ParenR": "{}) ", "ParenBoth": "({}) ", "Plain": "{} "}


def read_paragraphs(paragraphs: Iterable[Any]) -> Iterator[str]:
    """Yield the text of each paragraph with its printed number.

    Args:
        paragraphs: the `a:p` elements.
    """
    counts: dict[int, tuple[str, int]] = {}  # kind and last number by level
    for paragraph in paragraphs:
        text = read_paragraph(paragraph)
        yield (_mark(paragraph, counts) if text.strip() else "") + text


def read_paragraph(paragraph: Any) -> str:
    """Return the text of an `a:p` element."""
    parts: list[str] = []
    script, start = "", 0
    for element in paragraph:
        before, script = script, _script(element)
        if script != before:
            mark_script(parts, start, before)
            start = len(parts)
        if _is_struck(element):
            continue  # what replaces it follows
        if element.tag in _RUNS:
            parts.append(element.findtext(f"{_A}t") or "")
        elif element.tag == f"{_A}br":
            parts.append("\n")
        else:
            choice = element.find(_CHOICE)
            parts += map(write_equation, () if choice is None else choice.iter(_EQUATION))
    mark_script(parts, start, script)
    return "".join(parts)


def _is_struck(run: Any) -> bool:
    """Return whether a run is struck through."""
    properties = run.find(f"{_A}rPr")
    return properties is not None and properties.get("strike", "noStrike") != "noStrike"


def _script(element: Any) -> str:
    """Return `superscript`, `subscript` or nothing for a run."""
    properties = element.find(f"{_A}rPr")
    baseline = "" if properties is None else properties.get("baseline", "")
    if not re.fullmatch(r"-?[1-9]\d{0,6}", baseline):
        return ""
    return "subscript" if baseline.startswith("-") else "superscript"


def _mark(paragraph: Any, counts: dict[int, tuple[str, int]]) -> str:
    """Count a paragraph, and return its number as it is printed."""
    properties = paragraph.find(f"{_A}pPr")
    level = "0" if properties is None else properties.get("lvl", "0")
    depth = int(level) if level in "0123456789" else 0
    for deeper in [other for other in counts if other > depth]:
        del counts[deeper]
    numbered = None if properties is None else properties.find(f"{_A}buAutoNum")
    kind = "" if numbered is None else numbered.get("type", "")
    match = _NUMBER.fullmatch(kind)
    if numbered is None or match is None:
        counts.pop(depth, None)
        return ""
    first = numbered.get("startAt", "1")
    before = counts.get(depth)
    if before is not None and before[0] == f"{kind} {first}":
        number = before[1] + 1
    else:
        number = int(first) if first.isdecimal() and len(first) < 6 else 1
    counts[depth] = f"{kind} {first}", number
    return _FORMS[match[2]].format(format_number(number, _STYLES[match[1]]))
