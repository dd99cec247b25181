"""Parse Markdown.

Each line keeps its number, so that cited lines are the lines of the file.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from kosmos_rag.core.types import Heading, ParsedDocument, TableSpan
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.clean import clean_title, offset_lines
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.text.decode import decode
from kosmos_rag.parsing.text.front_matter import read_front_matter
from kosmos_rag.parsing.text.markdown_markup import clean_markdown
from kosmos_rag.parsing.text.markdown_tables import find_markdown_tables

# The grammar is that of CommonMark 0.31: sections 4.2 (ATX), 4.3 (setext) and 4.5 (fences).
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:>|[-+*][ \t]|\d{1,9}[.)][ \t]|\||<)")
"""A line that begins no paragraph: indented code, a quote, a list item, a table row, HTML."""


def parse_markdown(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse Markdown, with headings outside of fences.

    ATX and setext headings; the title is that of the front matter or the first heading of level 1. The lines of the
    front matter are blank in the text: what they say is metadata. So are those of markup that no page shows.

    Raises:
        ParseError: `empty`, `binary` or `too_large`.
    """
    text = decode(data)
    front = read_front_matter(text)
    cleaned = clean_markdown(text[front.end :], limits)
    first = text.count("\n", 0, front.end)
    text = "\n" * first + cleaned.text
    lines = list(_outside_fences(text))
    headings = tuple(_headings(lines))
    html_tables = (_shift(table, first) for table in cleaned.tables)
    return ParsedDocument(
        text=text,
        media_type=media_types.MARKDOWN,
        title=front.title or next((h.title for h in headings if h.level == 1), None),
        headings=headings,
        metadata=front.metadata,
        tables=tuple(sorted(chain(find_markdown_tables(lines), html_tables), key=lambda table: table.start)),
    )


def _shift(table: TableSpan, by: int) -> TableSpan:
    return replace(table, start=by + table.start, end=by + table.end, body=by + (table.body or table.start))


def _headings(lines: Iterable[tuple[int, str]]) -> Iterator[Heading]:
    paragraph: tuple[int, str] | None = None  # the first line of a paragraph, while it is the only one
    previous_blank = True
    for at, line in lines:
        if "#" in line[:4] and (heading := _atx(at, line)):
            yield heading
            paragraph, previous_blank = None, True
            continue
        if paragraph and (underline := _SETEXT.match(line)):
            if title := clean_title(paragraph[1]):
                yield Heading(level=1 if underline[1][0] == "=" else 2, title=title, start=paragraph[0])
            paragraph, previous_blank = None, True
            continue
        blank = not line or line.isspace()
        starts = previous_blank and not blank and not _NO_PARAGRAPH.match(line)
        # Of a longer paragraph CommonMark would make one long heading; a rule under prose is what is meant.
        paragraph, previous_blank = ((at, line) if starts else None), blank


def _atx(at: int, line: str) -> Heading | None:
    match = _ATX.match(line)
    if match is None:
        return None
    title = (match[2] or "").rstrip(" \t")
    bare = title.rstrip("#")
    if not bare or bare[-1] in " \t":  # a closing sequence must follow a space
        title = bare
    cleaned = clean_title(title)
    return Heading(level=len(match[1]), title=cleaned, start=at) if cleaned else None


def _outside_fences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not code.

    A fence gives one empty line, for it ends a paragraph.
    """
    fence = ""
    for at, line in offset_lines(text):
        match = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if not fence:
            fence = match[1] if match else ""
            yield at, "" if match else line
        elif match and match[1].startswith(fence) and line.strip(" \t") == match[1]:
            fence = ""
