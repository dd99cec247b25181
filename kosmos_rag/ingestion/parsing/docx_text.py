"""Read the text of Word's paragraphs.

Notes, equations, superscripts and the texts of drawings are included.
"""

from collections.abc import Iterator
from typing import Any

from kosmos_rag.ingestion.parsing.clean import clean
from kosmos_rag.ingestion.parsing.docx_styles import W
from kosmos_rag.ingestion.parsing.office_drawings import CHART, DIAGRAM, drawing_contents
from kosmos_rag.ingestion.parsing.omml import equation_text
from kosmos_rag.ingestion.parsing.scripts import script_mark
from kosmos_rag.ingestion.parsing.tables import Table, one_line

PARAGRAPH = f"{W}p"
_RUN, _TEXT = f"{W}r", f"{W}t"
_EQUATION = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_CHARACTERS = {
    f"{W}tab": "\t",
    f"{W}br": "\n",
    f"{W}cr": "\n",
    f"{W}noBreakHyphen": "-",
    PARAGRAPH: "\n",
}
"""Texts of elements inside a paragraph; an inner paragraph belongs to a text box."""
_NOT_READ = frozenset({f"{W}pPr", f"{W}rPr", f"{W}del", f"{W}moveFrom", _FALLBACK})
"""Properties, text that a tracked change has removed, and the second copy of a drawing's text."""
_NOTES = {
    f"{W}footnoteReference": "footnotes",
    f"{W}endnoteReference": "endnotes",
    f"{W}commentReference": "comments",
}
"""References to notes, and the part that has the notes."""
_STOP = frozenset({_EQUATION})


class TextReader:
    """Reads paragraphs, and collects the notes and drawings that they refer to."""

    def __init__(self, part: Any) -> None:
        """Create a reader for the paragraphs of a part of the package."""
        self._part = part
        self._related = {str(rel.reltype).rpartition("/")[2]: rel for rel in part.rels.values() if not rel.is_external}
        self._notes: dict[str, dict[str, str]] = {}
        self._number = 0
        self._contents: list[Table | str] = []

    def related_root(self, name: str) -> Any | None:
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
        script = ""
        for element in descend(paragraph, stop=_STOP):
            if element.tag == _RUN:
                before, script = script, _script(element)
                if script and script != before:
                    parts.append(script_mark(script, "".join(text.text or "" for text in element.iter(_TEXT))))
            elif element.tag == _TEXT:
                parts.append(element.text or "")
            elif element.tag in _CHARACTERS:
                parts.append(_CHARACTERS[element.tag])
            else:
                parts.append(self._special(element))
        return clean("".join(parts))

    def _special(self, element: Any) -> str:
        if element.tag == _EQUATION:
            return equation_text(element)
        if element.tag in _NOTES:
            return self._refer(_NOTES[element.tag], element.get(f"{W}id", ""))
        if element.tag in (CHART, DIAGRAM):
            self._contents += drawing_contents(element, self._part)
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
        root = self.related_root(kind)
        for note in () if root is None else root:
            text = one_line(" ".join(self.read(paragraph) for paragraph in note.iter(PARAGRAPH)))
            if kind == "comments" and text:
                text = f"Comment ({note.get(f'{W}author') or 'unknown'}): {text}"
            yield note.get(f"{W}id", ""), text


def _script(run: Any) -> str:
    """Return `superscript`, `subscript` or nothing."""
    properties = run.find(f"{W}rPr")
    align = None if properties is None else properties.find(f"{W}vertAlign")
    value = "" if align is None else align.get(f"{W}val", "")
    return value if value in ("superscript", "subscript") else ""


def descend(root: Any, stop: frozenset[str] | set[str] = frozenset()) -> Iterator[Any]:
    """Yield the descendants that are read, in document order.

    Those inside a `stop` element are left out.
    """
    pending = list(reversed(root))
    while pending:
        element = pending.pop()
        if element.tag in _NOT_READ:
            continue
        yield element
        if element.tag not in stop:
            pending.extend(reversed(element))
