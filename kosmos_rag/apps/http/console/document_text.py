"""Stored text of a document as HTML for readers, with exact marks.

Each character that is shown has the offset of one character in the document. Markup in a text stays text, and no link
leads to another host.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import accumulate, chain, pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from kosmos_rag.apps.http.console.links import Span
from kosmos_rag.apps.http.console.markdown import TABLE, element_tag, merge_spans, set_heading_levels
from kosmos_rag.core.types import DocumentSection
from kosmos_rag.parsing import media_types

_MARKDOWN = frozenset({media_types.MARKDOWN, media_types.NOTEBOOK})
_CODE = frozenset(
    {*media_types.CODE.values(), *media_types.MARKUP.values(), media_types.JSON, media_types.JSONL, media_types.SVG}
)
_TOP_LEVEL = 2
"""The level of the highest heading: the page has the title."""
_HEADING_MARK = re.compile(r"[^#]*#{1,6}")
_LINK_END = re.compile(
    r"""\]\(\s*(?:<[^<>\n]*>|(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*)"""
    r"""(?:\s+(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)))?\s*\)"""
)
_BREAK = re.compile(r"[ \t]*\\?\n[ \t]*")
_PIPE = re.compile(r"(?<!\\)\|")
_BEFORE_TABLE = re.compile(r"[\s>]*(?:(?:[-+*]|\d{1,9}[.)])\s+)*")
_FILLED = 0.8
"""Share of the longest line from which a line is full: letters have several widths."""
_LEAST_WIDTH = 40
"""Characters of a line from which a block is prose: addresses and verses have shorter ones."""
_ITEM = re.compile(r"(?:-|(\d{1,9})[.)])[ \t]+(?=\S)")
_COLUMN_SIGN = " | "
_MAX_COLUMNS, _MAX_CAPTIONS, _MAX_NAME_CHARS = 60, 2, 60
_LINES_TO_HEADING = 3
"""Lines from a heading to the start of its section."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """What to mark in a document."""

    exact: Sequence[Span] = ()
    """Characters to mark."""
    near: Sequence[Span] = ()
    """Spans that are uncertain: the whole paragraphs are marked."""
    chunks: Sequence[tuple[int, int]] = ()
    """Offset and number of chunks, to show where each begins."""


def render_document(
    text: str,
    media_type: str,
    marks: Marks,
    *,
    start: int = 0,
    line_start: int = 1,
    sections: Sequence[DocumentSection] = (),
) -> Markup:
    """Render a part of a document for readers.

    Args:
        media_type: format of the file that the text is from.
        start: offset of the text in its document.
        line_start: number of its first line.
        sections: sections of the document, with its headings.
    """
    writer = _Writer(marks, text, start)
    if media_type in _MARKDOWN:
        html = _markdown(text, writer)
    elif media_type in _CODE:
        html = _pre(text, range(len(text)), (0, len(text)), writer)
    else:
        html = "".join(_blocks(text, writer, _heading_levels(text, line_start, sections)))
    # The writer escapes every text.
    return Markup(html)  # noqa: S704


class _Writer:
    """Writes texts with marks. Offsets are those of the part."""

    def __init__(self, marks: Marks, text: str, start: int) -> None:
        self.source = text
        self._exact = merge_spans(_shift_spans(marks.exact, start))
        self._near = merge_spans(_shift_spans(marks.near, start))
        self._chunks = [(max(0, offset - start), number) for offset, number in sorted(marks.chunks, reverse=True)]
        self._is_first = True

    def write(self, text: str, offsets: Sequence[int] | None, block: Span) -> str:
        """Write a text whose characters have these ascending offsets.

        Args:
            offsets: the offset of each character; None where only the paragraph is known, which is marked as a whole.
            block: the paragraph that contains the text.
        """
        is_whole = _overlaps(self._near, block) or (offsets is None and _overlaps(self._exact, block))
        offsets = offsets or []
        bounds = [(bisect_left(offsets, first), bisect_left(offsets, last)) for first, last in self._exact]
        bounds = [(0, len(text))] if is_whole else bounds
        labels = dict(self._label_chunk_starts(offsets))
        cuts = sorted({0, len(text), *chain.from_iterable(bounds), *labels})
        parts = []
        for begin, end in pairwise(cuts):
            parts.append(labels.get(begin, ""))
            piece = escape(text[begin:end])
            parts.append(self._highlight(piece) if any(a <= begin and end <= b for a, b in bounds) else piece)
        return "".join(parts)

    def _highlight(self, html: str) -> str:
        anchor = ' id="cited"' if self._is_first else ""
        self._is_first = False
        return f"<mark{anchor}>{html}</mark>"

    def _label_chunk_starts(self, offsets: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield where chunks begin, with their labels."""
        numbers_by_index: dict[int, list[int]] = {}
        while self._chunks and offsets and self._chunks[-1][0] <= offsets[-1]:
            offset, number = self._chunks.pop()
            numbers_by_index.setdefault(bisect_left(offsets, offset), []).append(number)
        for index, numbers in numbers_by_index.items():
            yield index, "".join(f'<span class="chunk-start"><b>chunk {number}</b></span>' for number in numbers)


def _overlaps(spans: Iterable[Span], block: Span) -> bool:
    return any(first < block[1] and block[0] < last for first, last in spans)


def _shift_spans(spans: Iterable[Span], start: int) -> list[Span]:
    return [(max(0, first - start), last - start) for first, last in spans if last > start]


# Markdown


def _markdown(text: str, writer: _Writer) -> str:
    # One character for one: offsets stay the same.
    source = text.replace("\r", " ")
    lines = source.split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    tokens = _parser().parse(source)
    set_heading_levels(tokens, _TOP_LEVEL)
    parts, cells = [], 0
    for index, token in enumerate(tokens):
        cells = 0 if token.type == "tr_open" else cells + (token.type in {"th_open", "td_open"})
        first, last = token.map or (0, 0)
        block = (starts[first], starts[last])
        if token.type == "inline":
            kind = tokens[index - 1].type
            content = token.content
            if kind in {"th_open", "td_open"}:
                offsets = _cell_offsets(lines[first], starts[first], cells - 1, content)
            else:
                offsets = _line_offsets(content, lines[first:last], starts[first:last], heading=kind == "heading_open")
            parts.append(_inline(token, offsets, block, writer))
        elif token.type in {"fence", "code_block"}:
            skipped = first + (token.type == "fence")
            content = token.content.removesuffix("\n")
            offsets = _line_offsets(content, lines[skipped:last], starts[skipped:last])
            parts.append(_pre(content, offsets, block, writer))
        elif token.type == "hr":
            parts.append("<hr>\n")
        elif token.nesting and not token.hidden:
            parts.append(element_tag(token))
    return "".join(parts)


def _line_offsets(
    content: str, lines: Sequence[str], starts: Sequence[int], *, heading: bool = False
) -> list[int] | None:
    """Return the offset of each character of a block.

    The result is None where its lines do not match. A line of a block is the end of its line in the source: before it
    are signs of lists and quotes.
    """
    offsets: list[int] = []
    content_lines = content.split("\n")
    if len(content_lines) > len(lines):
        return None
    for row, line in enumerate(content_lines):
        body, source = line.strip(), lines[row]
        if heading:
            mark = _HEADING_MARK.match(source)
            at = source.find(body, mark.end()) if mark and not row else source.rfind(body)
        else:
            at = len(source.rstrip()) - len(body)
            at = at if at >= 0 and source.startswith(body, at) else -1
        if at < 0:
            return None
        indent = len(line) - len(line.lstrip()) if body else 0
        offsets += [starts[row] + max(0, at - indent + column) for column in range(len(line) + 1)]
    return offsets[:-1]


def _cell_offsets(line: str, start: int, number: int, content: str) -> list[int] | None:
    """Return the offset of each character of a cell of a table."""
    pipes = [match.start() for match in _PIPE.finditer(line)]
    edges = [-1, *pipes, len(line)]
    if pipes and _BEFORE_TABLE.fullmatch(line, 0, pipes[0]):
        edges = edges[1:]
    if not content:
        return []
    if number + 1 >= len(edges):
        return None
    first, last = edges[number] + 1, edges[number + 1]
    raw = line[first:last].rstrip()
    indexes = [index for index in range(len(raw)) if not raw.startswith("\\|", index)]
    cell = "".join(raw[index] for index in indexes)
    at = len(cell) - len(content)
    return [start + first + index for index in indexes[at:]] if at >= 0 and cell.endswith(content) else None


def _inline(token: Token, offsets: Sequence[int] | None, block: Span, writer: _Writer) -> str:
    """Write the parts of a paragraph."""
    children = token.children or []
    places = None if offsets is None else _places(children, token.content)
    parts = []
    for index, child in enumerate(children):
        text = " " if child.type in {"softbreak", "hardbreak"} else child.content
        at = None if places is None or offsets is None else [offsets[place] for place in places[index]]
        parts.append(_element(child, writer.write(text, at, block) if text else ""))
    return "".join(parts)


def _element(child: Token, body: str) -> str:
    if child.type == "hardbreak":
        return f"<br>{body}"
    if child.type == "code_inline":
        return f"<code>{body}</code>"
    if child.type in {"link_open", "link_close"}:
        return '<span class="link">' if child.nesting > 0 else "</span>"
    return element_tag(child) if child.nesting else body


def _places(children: Sequence[Token], content: str) -> list[Sequence[int]] | None:
    """Return where the shown characters of each part are in a paragraph.

    The result is None if a part is not where it must be.
    """
    places, at = [], 0
    for child in children:
        result = _place(child, content, at)
        if result is None:
            return None
        offsets, at = result
        places.append(offsets)
    return places


def _place(child: Token, content: str, at: int) -> tuple[Sequence[int], int] | None:
    """Return where the characters of a part are, and where it ends."""
    if child.type in {"softbreak", "hardbreak"}:
        match = _BREAK.match(content, at)
        return ([content.index("\n", at)], match.end()) if match else None
    if child.type == "code_inline":
        return _code_place(child, content, at)
    if child.type == "text_special":
        end = at + len(child.markup)
        first = at + (child.info == "escape" and child.content != child.markup)
        offsets = range(at, end) if child.content == child.markup else [first] * len(child.content)
        return (offsets, end) if content.startswith(child.markup, at) else None
    if child.type in {"link_close", "image"}:
        start = at + 2 if child.type == "image" else at
        end = start + len(child.content)
        match = _LINK_END.match(content, end)
        return (range(start, end), match.end()) if match and content.startswith(child.content, start) else None
    sign = "[" if child.type == "link_open" else child.markup if child.nesting else child.content
    end = at + len(sign)
    return (range(at, end) if not child.nesting else [], end) if content.startswith(sign, at) else None


def _code_place(child: Token, content: str, at: int) -> tuple[Sequence[int], int] | None:
    length = len(child.content)
    for padding in (0, 1):
        start = at + len(child.markup) + padding
        end = start + length + padding
        if content[start : start + length].replace("\n", " ") == child.content and content.startswith(
            child.markup, end
        ):
            return range(start, start + length), end + len(child.markup)
    return None


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    # Parts of a text stay apart: each has its own place in the source.
    return parser.disable(["autolink", "reference", "html_block", "html_inline", "text_join", "fragments_join"])


# Text of other formats: blocks of lines, with a blank line between two


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    text: str
    start: int

    @property
    def span(self) -> Span:
        return self.start, self.start + len(self.text)


def _blocks(text: str, writer: _Writer, levels: Mapping[int, int]) -> Iterator[str]:
    """Write headings, lists, tables, code and paragraphs."""
    opened = ""
    for block, level in _split(text, levels):
        kind = "" if level or not (item := _ITEM.match(block[0].text)) else "ol" if item[1] else "ul"
        if kind != opened:
            yield (f"</{opened}>\n" if opened else "") + (f"<{kind}>\n" if kind else "")
            opened = kind
        if level:
            yield f"<h{level}>{_write(block, writer)}</h{level}>\n"
        elif kind:
            yield from _items(block, writer)
        elif table := _find_table(block):
            yield _table(table, writer)
        elif any(line.text.startswith(("  ", "\t")) for line in block):
            yield _pre(*_join_lines(block), writer)
        else:
            yield f"<p>{_write(block, writer)}</p>\n"
    if opened:
        yield f"</{opened}>\n"


def _split(text: str, levels: Mapping[int, int]) -> Iterator[tuple[list[_Line], int]]:
    """Yield blocks of lines with their level, 0 without a heading."""
    block: list[_Line] = []
    start = 0
    for row, content in enumerate(text.split("\n")):
        level = levels.get(row, 0)
        if block and (level or not content.strip()):
            yield block, 0
            block = []
        line = _Line(text=content, start=start)
        if level:
            yield [line], level
        elif content.strip():
            block.append(line)
        start += len(content) + 1
    if block:
        yield block, 0


def _join_lines(block: Sequence[_Line]) -> tuple[str, Sequence[int], Span]:
    span = block[0].start, block[-1].span[1]
    return "\n".join(line.text for line in block), range(*span), span


def _write(block: Sequence[_Line], writer: _Writer) -> str:
    text, offsets, span = _join_lines(block)
    return writer.write(_join_wrapped(text.split("\n")), offsets, span)


def join_wrapped_lines(text: str) -> str:
    """Replace the line breaks of wrapped paragraphs by spaces; the length stays.

    PDF files have one at the end of each line. Those of lists, tables and code stay.
    """
    joined = text
    for block, _ in _split(text, {}):
        is_paragraph = not (_ITEM.match(block[0].text) or _find_table(block))
        if is_paragraph and not any(line.text.startswith(("  ", "\t")) for line in block):
            start, end = block[0].start, block[-1].span[1]
            joined = joined[:start] + _join_wrapped([line.text for line in block]) + joined[end:]
    return joined


def _join_wrapped(lines: Sequence[str]) -> str:
    """Join lines by a space where the next word did not fit."""
    width = max(map(len, lines))
    parts = [lines[0]]
    for line, following in pairwise(lines):
        word = following.split(maxsplit=1)[0] if following.strip() else ""
        is_wrapped = len(line) + 1 + len(word) > _FILLED * width and width >= _LEAST_WIDTH and word[:1].isalnum()
        parts += [" " if is_wrapped and not line.endswith(":") else "\n", following]
    return "".join(parts)


def _pre(text: str, offsets: Sequence[int] | None, block: Span, writer: _Writer) -> str:
    return f'<pre tabindex="0"><code>{writer.write(text, offsets, block)}</code></pre>\n'


def _items(block: Sequence[_Line], writer: _Writer) -> Iterator[str]:
    """Write the items of a list.

    Other lines belong to the item before.
    """
    items: list[list[_Line]] = []
    for line in block:
        if _ITEM.match(line.text):
            items.append([line])
        else:
            items[-1].append(line)
    for first, *others in items:
        match = _ITEM.match(first.text)
        sign = match.end() if match else 0
        value = f' value="{int(match[1])}"' if match and match[1] else ""
        lines = [_Line(text=first.text[sign:], start=first.start + sign), *others]
        yield f"<li{value}>{_write(lines, writer)}</li>\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Table:
    captions: Sequence[_Line]
    head: Sequence[_Line]
    rows: Sequence[tuple[Span, Sequence[_Line | None]]]


def _find_table(block: Sequence[_Line]) -> _Table | None:
    """Return the table that a block is, as the parsers write one.

    Names of columns, then rows such as `Plan: Basic; Seats: 15`; or only rows such as `Basic | 15`.
    """
    if len(block) < 2:
        return None
    for index in range(min(_MAX_CAPTIONS + 1, len(block) - 1)):
        head = _pipe_cells(block[index])
        if 1 < len(head) <= _MAX_COLUMNS:
            names = [cell.text[:_MAX_NAME_CHARS] for cell in head]
            rows = [(line.span, cells) for line in block[index + 1 :] if (cells := _parse_named_cells(line, names))]
            if len(rows) == len(block) - index - 1:
                return _Table(captions=block[:index], head=head, rows=rows)
    plain = [(line.span, _pipe_cells(line)) for line in block]
    return _Table(captions=(), head=(), rows=plain) if all(len(cells) > 1 for _, cells in plain) else None


def _pipe_cells(line: _Line) -> Sequence[_Line]:
    cells, start = [], line.start
    for text in line.text.split(_COLUMN_SIGN):
        cells.append(_Line(text=text, start=start))
        start += len(text) + len(_COLUMN_SIGN)
    return cells


def _parse_named_cells(line: _Line, names: Sequence[str]) -> Sequence[_Line | None] | None:
    """Return the cells of a row below names.

    The result is None if it is no such row.
    """
    cells: list[_Line | None] = [None] * len(names)
    column = next((index for index, name in enumerate(names) if line.text.startswith(f"{name}: ")), None)
    if column is None:
        return None
    start = len(names[column]) + 2
    while column is not None:
        following = [(line.text.find(f"; {names[later]}: ", start), later) for later in range(column + 1, len(names))]
        end, later = min((place for place in following if place[0] >= 0), default=(len(line.text), None))
        cells[column] = _Line(text=line.text[start:end], start=line.start + start)
        column, start = later, end if later is None else end + len(names[later]) + 4
    return cells


def _table(table: _Table, writer: _Writer) -> str:
    def cell(tag: str, content: _Line | None, row: Span) -> str:
        if content is None:
            return f"<{tag}></{tag}>"
        return f"<{tag}>{writer.write(content.text, range(*content.span), row)}</{tag}>"

    def row(tag: str, span: Span, cells: Sequence[_Line | None]) -> str:
        return f"<tr>{''.join(cell(tag, content, span) for content in cells)}</tr>\n"

    before, after = TABLE
    caption = f"<p>{_write(table.captions, writer)}</p>\n" if table.captions else ""
    head = row("th", (table.head[0].start, table.head[-1].span[1]), table.head) if table.head else ""
    body = "".join(row("td", span, cells) for span, cells in table.rows)
    return f"{caption}{before}<table>{f'<thead>{head}</thead>' if head else ''}<tbody>{body}</tbody></table>{after}\n"


def _heading_levels(text: str, line_start: int, sections: Sequence[DocumentSection]) -> dict[int, int]:
    """Return the levels of the lines that are headings of a section."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    levels: dict[int, int] = {}
    for section in sections:
        reach = _LINES_TO_HEADING * len(section.section)
        first, last = section.line_start - line_start - reach, section.line_start - line_start + reach
        for row in range(max(0, first), min(len(lines), last + 1)):
            if lines[row] in section.section:
                levels.setdefault(row, section.section.index(lines[row]))
    level = _TOP_LEVEL - 1
    for row in sorted(levels):
        level = levels[row] = min(_TOP_LEVEL + levels[row], level + 1, 6)
    return levels
