"""Parse reStructuredText, AsciiDoc, Org and LaTeX.

Every line is unchanged; headings are those of the markup.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from kosmos_rag.core.types import Heading, ParsedDocument, TableSpan
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.clean import clean_title, offset_lines
from kosmos_rag.parsing.text.decode import decode
from kosmos_rag.parsing.text.markup_tables import Lines, find_asciidoc_tables, find_org_tables, find_rst_tables

# docutils, "Sections": a line of one punctuation character below the title, and the same above it or none.
_RST_ADORNMENT = re.compile(r"([!-/:-@[-`{-~])\1*[ \t]*$")
_RST_SHORTEST = 4
"""A line of fewer characters adorns only a title that is no longer."""

_ADOC_TITLE = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_ADOC_CLOSING = re.compile(r" (?:=+|#+)$")
_ADOC_BLOCK = re.compile(r"(-{4,}|\.{4,}|\+{4,}|/{4,}|`{3,})[^\S\n]*\w*[ \t]*$")
"""Delimiters of blocks whose content is no markup: listing, literal, passthrough, comment, fence."""

_ORG_TITLE = re.compile(
    r"^(?P<stars>\*+)[ \t]+(?:(?:TODO|NEXT|WAITING|DONE|CANCELL?ED)[ \t]+)?(?:\[#\w\][ \t]*)?(?P<title>\S[^\n]*)",
    re.MULTILINE,
)
_ORG_TAGS = re.compile(r" :[\w@#%:]+:$")
_ORG_KEYWORD = re.compile(r"^#\+TITLE:[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)

_TEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_TEX_PART = re.compile(
    r"\\begin\{(?P<verbatim>verbatim\*?|lstlisting|minted|comment)\}"
    r"|(?<!\\)%[^\n]*"
    rf"|\\(?P<command>{'|'.join(_TEX_LEVELS)}|title)\*?[ \t]*(?:\[[^\]\n]{{0,300}}\])?[ \t]*\{{"
)
_TEX_LABEL = re.compile(r"\\(?:label|thanks|footnote|index)\{[^{}]*\}")
_TEX_COMMAND = re.compile(r"\\[a-zA-Z]+\*?[ \t]*|\\\\|[{}]")
_TEX_ESCAPED = re.compile(r"\\([#$%&_{}])")

_TitleAndHeadings = tuple[str | None, list[Heading]]


def parse_markup(data: bytes, *, media_type: str) -> ParsedDocument:
    """Parse a text with markup, with its headings.

    The title is the one that the markup declares, else the first heading of level 1.

    Raises:
        ParseError: `empty` or `binary`.
    """
    text = decode(data)
    title, headings = _GRAMMARS[media_type](text)
    return ParsedDocument(
        text=text,
        media_type=media_type,
        title=title or next((heading.title for heading in headings if heading.level == 1), None),
        headings=tuple(headings),
        tables=tuple(_TABLES[media_type](list(offset_lines(text)))) if media_type in _TABLES else (),
    )


def _find_rst_headings(text: str) -> _TitleAndHeadings:
    """Find the titles of reStructuredText.

    The first adornment is that of level 1.
    """
    headings: list[Heading] = []
    levels: dict[str, int] = {}
    lines = [(0, ""), (0, ""), *offset_lines(text)]
    for (_, overline), (start, line), (_, underline) in zip(lines, lines[1:], lines[2:], strict=False):
        adornment = _RST_ADORNMENT.match(underline)
        title = clean_title(line)
        if adornment is None or title is None or _RST_ADORNMENT.match(line):
            continue
        is_overlined = overline.rstrip() == underline.rstrip()
        short = len(underline.rstrip()) < min(_RST_SHORTEST, len(title))
        if short or not (is_overlined or (not overline.strip() and not line[0].isspace())):
            continue
        level = levels.setdefault(adornment[1] * (1 + is_overlined), len(levels) + 1)
        headings.append(Heading(level=level, title=title, start=start))
    return None, headings


def _find_asciidoc_headings(text: str) -> _TitleAndHeadings:
    headings: list[Heading] = []
    block = ""
    for start, line in offset_lines(text):
        if delimiter := _ADOC_BLOCK.match(line):
            mark = delimiter[1]
            block = mark if not block else "" if block == mark else block
        elif not block and (match := _ADOC_TITLE.match(line)) and (title := clean_title(match[2])):
            headings.append(Heading(level=len(match[1]), title=_ADOC_CLOSING.sub("", title), start=start))
    return None, headings


def _find_org_headings(text: str) -> _TitleAndHeadings:
    headings = [
        Heading(level=len(match["stars"]), title=_ORG_TAGS.sub("", title), start=match.start())
        for match in _ORG_TITLE.finditer(text)
        if (title := clean_title(match["title"]))
    ]
    keyword = _ORG_KEYWORD.search(text)
    return clean_title(keyword[1]) if keyword else None, headings


def _find_tex_headings(text: str) -> _TitleAndHeadings:
    title: str | None = None
    headings: list[Heading] = []
    at = 0
    while match := _TEX_PART.search(text, at):
        at = match.end()
        if match["verbatim"]:
            end = text.find(f"\\end{{{match['verbatim']}}}", at)
            at = len(text) if end == -1 else end
        elif match["command"] and (name := clean_title(_tex_words(_read_braces(text, at)))):
            if match["command"] == "title":
                title = title or name
            else:
                level = _TEX_LEVELS.index(match["command"]) + 1
                headings.append(Heading(level=level, title=name, start=match.start()))
    return title, headings


def _read_braces(text: str, start: int) -> str:
    """Return the text within the braces that opened before `start`.

    The result is empty if they do not close.
    """
    depth = 1
    for at in range(start, min(len(text), start + bounds.MAX_TITLE_CHARS)):
        if text[at - 1] != "\\":
            depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start:at]
    return ""


def _tex_words(source: str) -> str:
    words = _TEX_COMMAND.sub(" ", _TEX_ESCAPED.sub(r"\1", _TEX_LABEL.sub("", source)))
    return words.replace("~", " ")


_GRAMMARS: Mapping[str, Callable[[str], _TitleAndHeadings]] = {
    media_types.RST: _find_rst_headings,
    media_types.ASCIIDOC: _find_asciidoc_headings,
    media_types.ORG: _find_org_headings,
    media_types.TEX: _find_tex_headings,
}
_TABLES: Mapping[str, Callable[[Lines], Iterator[TableSpan]]] = {
    media_types.RST: find_rst_tables,
    media_types.ASCIIDOC: find_asciidoc_tables,
    media_types.ORG: find_org_tables,
}
