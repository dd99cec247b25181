"""Read the comments and text boxes of an Excel sheet."""

import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from xml.etree.ElementTree import Element

from kosmos_rag.parsing.tables.sheets import Remark
from kosmos_rag.parsing.tables.table import collapse_whitespace

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_ANCHORS = "{http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_REFERENCE = re.compile(r"([A-Z]{1,3})([1-9]\d{0,6})")
_THREAD = "[Threaded comment]"
"""How Excel begins the comments of a thread for its older versions."""
_THREAD_AUTHOR = "tc={"


def read_remarks(archive: zipfile.ZipFile, sheet: str) -> Iterator[Remark]:
    """Yield the comments and the text boxes of a sheet.

    Args:
        archive: the workbook.
        sheet: the member that has the sheet.
    """
    folder, name = posixpath.split(sheet)
    relations = _xml(archive, f"{folder}/_rels/{name}.rels")
    for relation in () if relations is None else relations:
        read = _READERS.get(relation.get("Type", "").rpartition("/")[2])
        path = posixpath.normpath(posixpath.join(f"/{folder}", relation.get("Target", ""))).lstrip("/")
        part = _xml(archive, path) if read else None
        if read and part is not None:
            yield from read(part)


def _xml(archive: zipfile.ZipFile, member: str) -> Element | None:
    from defusedxml.ElementTree import fromstring

    if member not in archive.NameToInfo:
        return None
    root: Element = fromstring(archive.read(member))
    return root


def _comments(root: Element) -> Iterator[Remark]:
    authors = [author.text or "" for author in root.iter(f"{_MAIN}author")]
    for comment in root.iter(f"{_MAIN}comment"):
        reference = _REFERENCE.fullmatch(comment.get("ref", ""))
        number = comment.get("authorId", "")
        author = authors[int(number)] if number.isdecimal() and int(number) < len(authors) else ""
        text = "".join(part.text or "" for part in comment.iter(f"{_MAIN}t"))
        if text.startswith(_THREAD):
            text = text.partition("Comment:")[2].replace("\nReply:", "")
        text = collapse_whitespace(text).removeprefix(f"{author}:").strip()
        if reference and text:
            attribution = f" ({author})" if author and not author.startswith(_THREAD_AUTHOR) else ""
            row, column = int(reference[2]), _column(reference[1])
            yield Remark(text=f"Comment on {reference[0]}{attribution}: {text}", row=row, column=column)


def _text_boxes(root: Element) -> Iterator[Remark]:
    for anchor in root:
        start = anchor.find(f"{_ANCHORS}from")
        row, column = (-1, -1) if start is None else (_number(start, "row"), _number(start, "col"))
        bodies = dict.fromkeys(map(_words, anchor.iter(f"{_ANCHORS}txBody")))  # older versions of a drawing repeat it
        yield from (Remark(text=text, row=row + 1, column=column + 1) for text in bodies if text)


def _words(body: Element) -> str:
    lines = (collapse_whitespace("".join(part.itertext())) for part in body.iter(f"{_DRAWING}p"))
    return "\n".join(filter(None, lines))


def _number(start: Element, name: str) -> int:
    text = (start.findtext(f"{_ANCHORS}{name}") or "").strip()
    return int(text) if text.isdecimal() and len(text) < 8 else -1


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


_READERS: Mapping[str, Callable[[Element], Iterator[Remark]]] = {"comments": _comments, "drawing": _text_boxes}
"""By the kind of the relation."""
