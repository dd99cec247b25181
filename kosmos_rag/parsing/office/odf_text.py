"""Read the text of paragraphs of OpenDocument files."""

import re
from collections.abc import Collection
from xml.etree.ElementTree import Element

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.office.odf_styles import OFFICE, TEXT, Styles, parse_integer
from kosmos_rag.parsing.office.xml_tree import find_outermost
from kosmos_rag.parsing.scripts import write_script
from kosmos_rag.parsing.tables.table import collapse_whitespace

PARAGRAPH, HEADING = f"{TEXT}p", f"{TEXT}h"
_SPAN, _SPACES, _NOTE = f"{TEXT}span", f"{TEXT}s", f"{TEXT}note"
_CHARACTERS = {f"{TEXT}tab": "\t", f"{TEXT}line-break": "\n"}
NOT_READ = frozenset(
    {
        *(f"{TEXT}{name}" for name in ("tracked-changes", "table-of-content", "ruby-text")),
        *(f"{OFFICE}{name}" for name in ("annotation", "binary-data")),
    }
)
_SPACE = re.compile(r"\s+")


class TextReader:
    """Reads paragraphs, and collects the notes that they refer to."""

    def __init__(self, styles: Styles) -> None:
        self._styles = styles
        self._notes: list[str] = []

    def take_notes(self) -> list[str]:
        """Return the notes of the paragraphs since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def read(self, paragraph: Element) -> str:
        """Return the text of a paragraph; a note is `[1]` in it."""
        parts: list[str] = []
        pending: list[Element | str] = [paragraph]
        while pending:
            element = pending.pop()
            if isinstance(element, str):
                parts.append(element)
                continue
            parts.append(_CHARACTERS.get(element.tag, ""))
            if element.tag == _SPACES:
                parts.append(" " * max(1, min(parse_integer(element.get(f"{TEXT}c")), bounds.MAX_REPEATS)))
            elif element.tag == _NOTE:
                parts.append(self._note(element))
                continue
            elif element.tag == _SPAN and (styled_text := self._read_span(element)) is not None:
                parts.append(styled_text)
                continue
            for child in reversed(element):
                pending += [child.tail or "", child] if child.tag not in NOT_READ else [child.tail or ""]
            pending.append(_SPACE.sub(" ", element.text or ""))
        return "".join(parts)

    def read_line(self, element: Element, *, excluded: Collection[str] = NOT_READ) -> str:
        """Return the paragraphs of a cell or note on one line.

        Args:
            excluded: tags of elements that are left out.
        """
        return collapse_whitespace(
            " ".join(self.read(part) for part in find_outermost(element, {PARAGRAPH, HEADING}, excluded=excluded))
        )

    def _read_span(self, span: Element) -> str | None:
        """Return a superscript or subscript, nothing for hidden text.

        The result is None for other texts.
        """
        style = span.get(f"{TEXT}style-name")
        if self._styles.is_hidden("text", style):
            return ""
        script = self._styles.script(style)
        return (write_script(script, span.text or "") or None) if script and not len(span) else None

    def _note(self, note: Element) -> str:
        mark = f"[{collapse_whitespace(note.findtext(f'{TEXT}note-citation') or '*')}]"
        body = note.find(f"{TEXT}note-body")
        self._notes.append(f"{mark} {'' if body is None else self.read_line(body)}")
        return mark
