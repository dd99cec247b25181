"""Parse Jupyter notebooks.

Markdown cells are those of a Markdown file; code and its printed results are fenced blocks.
"""

import json
import re
from typing import Any

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.clean import clean
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.text.decode import decode
from kosmos_rag.parsing.text.markdown import parse_markdown

_SHOWN_TYPES = ("text/markdown", "text/latex", "text/plain")
"""Of a result in several forms the first that it has. Pictures are in none of them."""
_DATA_URL = re.compile(r"data:[\w.+/-]+;base64,[A-Za-z0-9+/=%]*")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NO_WORD = re.compile(r"[A-Za-z0-9+/=_-]{200,}")
"""Encoded bytes that a cell has printed."""


def parse_notebook(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a notebook by its cells, with the headings of its Markdown.

    Pictures and other encoded bytes are left out; a file that is no notebook keeps its lines as they are.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    text = decode(data)
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        notebook = None
    cells = _cells(notebook)
    if cells is None:
        return ParsedDocument(text=text, media_type=media_types.NOTEBOOK)
    language = _language(notebook)
    composition = Composition(limits)
    for cell in cells:
        if isinstance(cell, dict):
            _add_cell(composition, cell, language, limits)
    return composition.build(media_types.NOTEBOOK, composition.first_title)


def _cells(notebook: Any) -> list[Any] | None:
    """Return the cells; those of version 3 are in worksheets."""
    if not isinstance(notebook, dict):
        return None
    if isinstance(cells := notebook.get("cells"), list):
        return cells
    sheets = notebook.get("worksheets")
    if not isinstance(sheets, list):
        return None
    return [cell for sheet in sheets if isinstance(sheet, dict) for cell in sheet.get("cells") or ()]


def _language(notebook: Any) -> str:
    metadata = notebook.get("metadata")
    info = metadata.get("language_info") if isinstance(metadata, dict) else None
    name = info.get("name") if isinstance(info, dict) else None
    return name if isinstance(name, str) and name.isidentifier() else ""


def _add_cell(composition: Composition, cell: dict[str, Any], language: str, limits: OutputLimits) -> None:
    source = _DATA_URL.sub("", _join_lines(cell.get("source", cell.get("input"))))
    match cell.get("cell_type"):
        case "markdown":
            _add_markdown(composition, source, limits)
        case "heading":  # version 3
            _add_markdown(composition, f"# {source}", limits)
        case "code":
            _add_fenced(composition, source, language)
            outputs = cell.get("outputs")
            for output in outputs if isinstance(outputs, list) else ():
                if isinstance(output, dict):
                    _add_fenced(composition, _read_output(output), "")
        case _:
            composition.add_block(source)


def _add_markdown(composition: Composition, source: str, limits: OutputLimits) -> None:
    cleaned = clean(source).strip("\n").rstrip()
    if cleaned:
        composition.add_document(parse_markdown(cleaned.encode(), limits))


def _add_fenced(composition: Composition, code: str, language: str) -> None:
    if code.strip():
        fence = "```" if "```" not in code else "~~~~"
        composition.add_block(f"{fence}{language}\n{code.strip(chr(10)).rstrip()}\n{fence}")


def _read_output(output: dict[str, Any]) -> str:
    """Return the text of a result: printed text, value or error."""
    if "ename" in output:
        return f"{_join_lines(output['ename'])}: {_join_lines(output.get('evalue'))}"
    data = output.get("data")
    if not isinstance(data, dict):  # a stream, or a result of version 3
        text = _join_lines(output.get("text"))
    else:
        text = next((value for kind in _SHOWN_TYPES if (value := _join_lines(data.get(kind)))), "")
    return _NO_WORD.sub("", _ANSI.sub("", text))[: bounds.MAX_OUTPUT_CHARS]


def _join_lines(lines: Any) -> str:
    """Join a value that is a text or a list of lines."""
    return "".join(line for line in lines if isinstance(line, str)) if isinstance(lines, list | str) else ""
