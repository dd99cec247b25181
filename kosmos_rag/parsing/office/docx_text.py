"""Read the text of Word's paragraphs.

Notes, equations, superscripts and the texts of drawings are included.
"""

from collections.abc import Iterator
from typing import Any

from kosmos_rag.parsing.clean import clean
from kosmos_rag.parsing.office.docx_styles import W
from kosmos_rag.parsing.office.drawings import CHART, DIAGRAM, read_drawing
from kosmos_rag.parsing.office.omml import write_equation
from kosmos_rag.parsing.scripts import KINDS, mark_script
from kosmos_rag.parsing.tables.table import Table, collapse_whitespace

PARAGRAPH, TEXT = f"{W}p", f"{W}t"
_RUN = f"{W}r"
_EQUATION = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
_BOX = f"{W}txbxContent"
"""The paragraphs of a text box, which is anchored in a paragraph."""
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_CHARACTERS = {
    f"{W}tab": "\t",
    f"{W}ptab": "\t",
    f"{W}br": "\n",
    f"{W}cr": "\n",
    f"{W}noBreakHyphen": "-",
    PARAGRAPH: "\n",
}
"""Texts of elements inside a paragraph."""
_SYMBOL = f"{W}sym"
_CODES = {
    "Symbol": {
        "61": "α", "62": "β", "67": "γ", "64": "δ", "44": "Δ", "6C": "λ", "6D": "μ", "70": "π", "73": "σ", "53": "Σ",  # noqa: RUF001
        "57": "Ω", "A3": "≤", "AB": "↔", "AC": "←", "AE": "→", "B0": "°", "B1": "±", "B3": "≥", "B4": "×", "B7": "•",  # noqa: RUF001
        "B8": "÷", "B9": "≠", "BB": "≈", "A5": "∞", "D6": "√",
    },
    "Wingdings": {
        "6F": "☐", "A8": "☐", "A7": "▪", "D8": "➢", "DF": "←", "E0": "→", "E8": "➔", "FB": "✗", "FC": "✓", "FD": "☒",
        "FE": "☑",
    },
    "Wingdings 2": {"4F": "✗", "50": "✓", "51": "☒", "52": "☑", "A3": "☐"},
}  # fmt: skip
"""Characters of fonts that have an order of their own, by the last byte of their code."""
_SYMBOLS = {(font, code): character for font, codes in _CODES.items() for code, character in codes.items()}
NOT_READ = frozenset({f"{W}pPr", f"{W}rPr", f"{W}del", f"{W}moveFrom", f"{W}rt", _FALLBACK})
"""Properties, text that a tracked change has removed, how words are read, and the second copy of a drawing's text."""
_NOTES = {
    f"{W}footnoteReference": "footnotes",
    f"{W}endnoteReference": "endnotes",
    f"{W}commentReference": "comments",
}
"""References to notes, and the part that has the notes."""
_PROPERTIES, _BOLD, _ALIGN, _VALUE = f"{W}rPr", f"{W}b", f"{W}vertAlign", f"{W}val"
_NOT_SHOWN = (f"{W}vanish", f"{W}strike", f"{W}dstrike")
"""Hidden text, and text that is struck through: what replaces it follows."""
_OFF = ("0", "false", "off")
_HIDDEN = "hidden"
"""The style of a run that is left out."""


class TextReader:
    """Reads paragraphs, and collects the notes and drawings that they refer to."""

    def __init__(self, part: Any) -> None:
        """Create a reader for the paragraphs of a part of the package."""
        self._part = part
        self._related = {str(rel.reltype).rpartition("/")[2]: rel for rel in part.rels.values() if not rel.is_external}
        self._notes: dict[str, dict[str, str]] = {}
        self._number = 0
        self._contents: list[Table | str] = []

    def parse_related_part(self, name: str) -> Any | None:
        """Return the root of a related part, such as `numbering`."""
        from docx.oxml import parse_xml

        return parse_xml(self._related[name].target_part.blob) if name in self._related else None

    def take_contents(self) -> list[Table | str]:
        """Return notes and drawings of the paragraphs since the last call."""
        contents, self._contents = self._contents, []
        return contents

    def read(self, paragraph: Any) -> str:
        """Return the text of a paragraph; a note is `[1]` in it."""
        parts: list[str] = []
        script, start = "", 0  # of the runs from `start` on: Word divides `n+1` into several
        pending = list(reversed(paragraph))
        while pending:
            element = pending.pop()
            tag = element.tag
            if tag == TEXT:
                parts.append(element.text or "")
                continue
            if tag in NOT_READ:
                continue
            if tag == _BOX:
                self._contents += self._read_box(element)
                continue
            if tag == _RUN:
                before, style = script, _run_style(element)
                if style == _HIDDEN:
                    continue
                script = style
                if script != before:
                    mark_script(parts, start, before)
                    start = len(parts)
            elif tag in _CHARACTERS:
                parts.append(_CHARACTERS[tag])
            else:
                parts.append(self._special(element))
            if tag != _EQUATION:
                pending.extend(reversed(element))
        mark_script(parts, start, script)
        return clean("".join(parts))

    def _read_box(self, box: Any) -> Iterator[str]:
        """Yield the paragraphs of a text box, those of its tables and content controls too."""
        for paragraph in box.iter(PARAGRAPH):
            if next(paragraph.iterancestors(_BOX)) is box and (text := self.read(paragraph).strip()):
                yield text

    def _special(self, element: Any) -> str:
        if element.tag == _EQUATION:
            return write_equation(element)
        if element.tag == _SYMBOL:
            return _SYMBOLS.get((element.get(f"{W}font", ""), element.get(f"{W}char", "")[-2:].upper()), "")
        if element.tag in _NOTES:
            return self._refer(_NOTES[element.tag], element.get(f"{W}id", ""))
        if element.tag in (CHART, DIAGRAM):
            self._contents += read_drawing(element, self._part)
        return ""

    def _refer(self, kind: str, identity: str) -> str:
        if kind not in self._notes:
            self._notes[kind] = {}  # for notes that refer to notes
            self._notes[kind] = dict(self._read_notes(kind))
        note = self._notes[kind].get(identity)
        if not note:
            return ""
        if kind == "comments":
            self._contents.append(note)
            return ""
        self._number += 1
        self._contents.append(f"[{self._number}] {note}")
        return f"[{self._number}]"

    def _read_notes(self, kind: str) -> Iterator[tuple[str, str]]:
        root = self.parse_related_part(kind)
        for note in () if root is None else root:
            text = collapse_whitespace(" ".join(self.read(paragraph) for paragraph in note.iter(PARAGRAPH)))
            if kind == "comments" and text:
                text = f"Comment ({note.get(f'{W}author') or 'unknown'}): {text}"
            yield note.get(f"{W}id", ""), text


def _run_style(run: Any) -> str:
    """Return `superscript`, `subscript`, hidden or nothing."""
    properties = run.find(_PROPERTIES)
    if properties is None:
        return ""
    if any(is_on(properties, name) for name in _NOT_SHOWN):
        return _HIDDEN
    align = properties.find(_ALIGN)
    value = "" if align is None else align.get(_VALUE, "")
    return value if value in KINDS else ""


def is_on(properties: Any, name: str) -> bool:
    """Return whether a property that is on or off is on."""
    switch = properties.find(name)
    return switch is not None and switch.get(_VALUE) not in _OFF


def is_bold(cell: Any) -> bool:
    """Return whether all text of a cell is bold by its runs."""
    runs = [run for run in cell.iter(_RUN) if any(text.text and text.text.strip() for text in run.iter(TEXT))]
    return bool(runs) and all(
        (properties := run.find(_PROPERTIES)) is not None and is_on(properties, _BOLD) for run in runs
    )
