"""Remove HTML, scripts, the markup of site generators and the padding of tables from Markdown.

The text of tags stays, code is unchanged, and each line keeps its number.
"""

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kosmos_rag.core.types import TableSpan
from kosmos_rag.parsing.clean import clean
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.scripts import KINDS, write_script
from kosmos_rag.parsing.text.markdown_blocks import BlockKind, split_markdown
from kosmos_rag.parsing.text.markdown_html_tables import find_html_tables, read_html_table

_QUOTED = r"""(?:"(?:[^"\n]|\n(?![ \t]*\n))*+"|'(?:[^'\n]|\n(?![ \t]*\n))*+')"""
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\}"
"""An expression of JSX, with braces three deep."""
_ATTRIBUTE = rf"""\s+(?:[\w:@.#-]+(?:\s*=\s*(?:{_QUOTED}|{_BRACES}|[^\s"'=<>`{{}}]+))?|{_BRACES})"""
_LIST_ATTRIBUTE = r"""(?:[#.][A-Za-z][\w:.-]*|[\w-]+="[^"\n]*")"""
_ATTRIBUTE_LIST = rf"\{{[ \t]*{_LIST_ATTRIBUTE}(?:[ \t]+{_LIST_ATTRIBUTE})*[ \t]*\}}"
_TOKEN = re.compile(
    rf"""
    \\[\\`<>{{}}&]                                                          # an escaped character
  | (?P<code>(?P<ticks>`++)(?:[^`\n]++|\n(?![ \t]*\n)|(?!(?P=ticks)(?!`))`++)*+(?P=ticks)(?!`))
  | `++
  | (?P<deleted>(?<!~)~~(?=[^\s~])(?:[^~\n]|\n(?![ \t]*\n))++~~(?!~))
  | (?P<comment><!--|\{{/\*|\{{\#(?=[\s-]))
  | (?P<heading>^[ \t]*<h(?P<level>[1-6])(?:{_ATTRIBUTE})*+\s*>)
  | (?P<link><(?:(?:https?|ftp|mailto):[^\s<>]+|[^\s<>@/"=]+@[\w.-]+)>)
  | (?P<tag></?(?P<name>[A-Za-z][\w.:-]*)(?P<attributes>(?:{_ATTRIBUTE})*+)\s*(?P<closed>/?)>)
  | (?P<shortcode>\{{\{{[<%]|\{{%)
  | (?P<variable>\{{\{{-?\s*(?:(?:site|page|include|layout)\.[^{{}}\n]*|"(?P<literal>[^"{{}}\n]*)"[^{{}}\n]*)\}}\}})
  | (?P<list>\{{:[^{{}}\n]*\}}|(?<=[\])`*}}]){_ATTRIBUTE_LIST}|(?<=\))\{{[ \t]*\w+=[\w%]+(?:[ \t]+\w+=[\w%]+)*[ \t]*\}}
      |(?:^|(?<![ \t])[ \t]++){_ATTRIBUTE_LIST}(?=[ \t]*$))
  | (?P<data>data:[\w.+/-]+;base64,[A-Za-z0-9+/=%]*)
  | (?P<entity>&(?:[A-Za-z][A-Za-z0-9]{{1,31}}|\#\d{{1,7}}|\#[xX][0-9A-Fa-f]{{1,6}});)
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_COMMENT_ENDS = {"<!--": "-->", "{/*": "*/}", "{#": "#}"}
_SHORTCODE_ENDS = {"{{<": ">}}", "{{%": "%}}", "{%": "%}"}
_ARGUMENT = re.compile(r"""(?P<name>[\w-]+)\s*=\s*["'](?P<value>[^"'\n]*)["']""")
_FIRST_ARGUMENT = re.compile(r"""\S+\s+["']?(?P<value>[^\s"'=]+|(?<=["'])[^"'\n]+)(?:["']|\s|$)""")
_VERSION = re.compile(r"""(?<=\s)v?\d+(?:\.\d+)+(?=[\s/]|$)|(?<=version=")[^"\n]+""")
"""Such as in `new-in 0.141.0`: the page shows a label."""
_MACRO = re.compile(r"\s*\w+:\w+\s+(?P<value>\S+)\s*")
"""A comment that a theme replaces, such as `md:setting config.enabled`."""
_SHOWN = frozenset({"alt", "caption", "header", "label", "summary", "text", "title"})
"""Arguments of shortcodes and components that a page shows."""
_INLINE = frozenset(
    (
        *("a", "abbr", "b", "bdi", "bdo", "cite", "code", "dfn", "em", "font", "i", "ins", "kbd", "mark", "q", "s"),
        *("samp", "small", "span", "strong", "sub", "sup", "tt", "u", "var", "wbr"),
    )
)
"""Elements that divide no words."""
_NEVER_CLOSED = frozenset(
    ("br", "dd", "dt", "hr", "li", "option", "p", "tbody", "td", "tfoot", "th", "thead", "tr", "wbr")
)
"""Elements that need no end. Others without one, and without attributes, are words: `cp <source> <target>`."""
_ROLES = frozenset({"assistant", "endoftext", "im_end", "im_start", "inst", "sys", "system"})
"""Tags of prompts. They stay: the check for instructions to a language model must see them."""
_DROPPED = frozenset({"del", "s", "script", "strike", "style"})
_VERBATIM = frozenset({"code", "highlight", "raw", "verbatim"})
"""Shortcodes around code."""
_ROW = re.compile(r"^[ \t]*\|.*\|[ \t]*$", re.MULTILINE)
_RULE = re.compile(r"[ \t|:-]+")
"""The row below a head."""
_LONG_DASHES = re.compile(r"-{4,}+")
_PADDING = re.compile(
    r"""
    \\[\\`]
  | (?P<ticks>`++)(?:[^`]++|(?!(?P=ticks)(?!`))`++)*+(?P=ticks)(?!`)  # code, which stays as it is
  | `++
  | (?<=\|)[ \t]{2,}+ | (?<![ \t])[ \t]{2,}+(?=\|)
    """,
    re.VERBOSE,
)
"""Of the cells of a row: a formatted table is mostly padding."""
_PICTURE_FILE = re.compile(r"\S+\.(?:avif|bmp|gif|jpe?g|png|svg|tiff?|webp)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanedMarkdown:
    """A text without the markup that no page shows."""

    text: str
    tables: tuple[TableSpan, ...]
    """Its tables that were HTML."""


def clean_markdown(text: str, limits: OutputLimits) -> CleanedMarkdown:
    """Remove HTML, scripts, shortcodes, attribute lists, MDX and the padding of tables from Markdown.

    A table of HTML becomes the lines of a parser's table. The text has as many lines as before.
    """
    blocks = list(split_markdown(text))
    prose = "".join(block for kind, block in blocks if kind is BlockKind.PROSE)
    closed_names = frozenset(_find_closed_names(prose))
    parts: list[str] = []
    tables: list[TableSpan] = []
    size = 0
    for kind, block in blocks:
        for part, table in _clean_block(kind, block, closed_names, limits):
            if table:
                tables.append(replace(table, start=size, end=size + table.end, body=size + (table.body or 0)))
            parts.append(part)
            size += len(part)
    return CleanedMarkdown(text="".join(parts), tables=tuple(tables))


def _find_closed_names(text: str) -> Iterator[str]:
    """Yield the names of tags that end in a text, outside of code."""
    if "</" in text:
        for match in _TOKEN.finditer(text):
            if match["tag"] and match[0].startswith("</"):
                yield match["name"].lower()


def _clean_block(
    kind: BlockKind, block: str, closed_names: frozenset[str], limits: OutputLimits
) -> Iterator[tuple[str, TableSpan | None]]:
    """Yield the cleaned parts of a block, with the span of those that are a table."""
    if kind is BlockKind.CODE:
        yield block, None
        return
    if kind is BlockKind.MODULE:
        yield "\n" * block.count("\n"), None
        return
    at = 0
    for start, end in find_html_tables(block):
        source = block[start:end]
        table = read_html_table(source, lambda cell: _Cleaner(cell, closed_names).clean(headings=False), limits)
        if table:
            yield _clean_lines(block[at:start], closed_names), None
            yield table.text + "\n" * (source.count("\n") - table.text.count("\n")), table.span(0)
            at = end
    yield _clean_lines(block[at:], closed_names), None


def _clean_lines(text: str, closed_names: frozenset[str]) -> str:
    """Remove the markup of a text, and the white space that it leaves."""
    text = _ROW.sub(_shorten_row, text)
    cleaned = _Cleaner(text, closed_names).clean()
    if cleaned == text:
        return text
    lines = zip(text.split("\n"), cleaned.split("\n"), strict=True)
    return "\n".join(after if before == after else _trim_line(before, after) for before, after in lines)


def _shorten_row(match: re.Match[str]) -> str:
    """Return a row of a table without its padding."""
    row = _PADDING.sub(lambda part: " " if part[0].isspace() else part[0], match[0])
    return _LONG_DASHES.sub("---", row) if _RULE.fullmatch(row) else row


def _trim_line(before: str, after: str) -> str:
    # Four spaces before a tag are no code; before its text they would be.
    return after.strip() if before.lstrip().startswith(("<", "{")) else after.rstrip()


_Replacement = tuple[str, int]
"""What replaces a token, and where the text continues."""


class _Cleaner:
    """Removes the markup of a text without blocks of code."""

    def __init__(self, text: str, closed_names: frozenset[str]) -> None:
        self._text = text
        self._closed_names = closed_names
        self._missing: set[str] = set()
        """Patterns that the rest of the text does not have."""
        self._replacers: dict[str | None, Callable[[re.Match[str]], _Replacement]] = {
            "deleted": lambda match: ("", match.end()),
            "comment": self._replace_comment,
            "heading": self._replace_heading,
            "link": lambda match: (match[0][1:-1], match.end()),
            "tag": self._replace_tag,
            "shortcode": self._replace_shortcode,
            "variable": lambda match: (match["literal"] or "", match.end()),
            "list": lambda match: ("", match.end()),
            "data": lambda match: ("", match.end()),
            "entity": lambda match: (_decode_entity(match[0]), match.end()),
        }

    def clean(self, *, headings: bool = True) -> str:
        """Return the text with as many lines.

        Args:
            headings: whether HTML headings become headings of Markdown.
        """
        if not headings:
            self._replacers["heading"] = lambda match: ("", match.end())
        parts: list[str] = ["\n"]
        at = 0
        while match := _TOKEN.search(self._text, at):
            if at < match.start():
                parts.append(self._text[at : match.start()])
            replacement, at = self._replacers.get(match.lastgroup, _keep)(match)
            lines = self._text.count("\n", match.start(), at) - replacement.count("\n")
            replacement += "\n" * lines
            if replacement and (replacement != " " or not parts[-1][-1].isspace()):
                parts.append(replacement)
        return "".join([*parts[1:], self._text[at:]])

    def _find(self, pattern: str, start: int) -> re.Match[str] | None:
        if pattern in self._missing:
            return None
        match = re.compile(pattern, re.IGNORECASE).search(self._text, start)
        if match is None:
            self._missing.add(pattern)
        return match

    def _replace_comment(self, match: re.Match[str]) -> _Replacement:
        end = self._find(re.escape(_COMMENT_ENDS[match[0]]), match.end())
        if end is None:
            return ("", len(self._text)) if match[0] == "<!--" else _keep(match)
        macro = _MACRO.fullmatch(self._text, match.end(), end.start())
        return (macro["value"] if macro and self._is_heading(match.start(), end.end()) else ""), end.end()

    def _replace_heading(self, match: re.Match[str]) -> _Replacement:
        level = match["level"]
        end = self._find(rf"</h{level}\s*>", match.end())
        if end is None:
            return "", match.end()
        inside = _Cleaner(self._text[match.end() : end.start()], self._closed_names).clean(headings=False)
        title = " ".join(inside.split())
        rest = self._text[end.end() :].partition("\n")[0].strip()
        is_alone = not rest or rest.startswith("</")
        return (f"{'#' * int(level)} {title}" if title and is_alone else title), end.end()

    def _replace_tag(self, match: re.Match[str]) -> _Replacement:
        name, end = match["name"].lower(), match.end()
        is_end = match[0].startswith("</")
        has_values = "=" in match["attributes"] or "{" in match["attributes"] or match["closed"]
        is_markup = is_end or has_values or name in _NEVER_CLOSED or name in self._closed_names
        if not is_markup or name in _ROLES:
            return _keep(match)
        if not is_end:
            if name in _DROPPED and not match["closed"] and (closing := self._find(rf"</{name}\s*>", end)):
                return "", closing.end()
            if name in KINDS and (
                script := re.compile(rf"([^<>\n]+)</{name}\s*>", re.IGNORECASE).match(self._text, end)
            ):
                return write_script(name, script[1]) or script[1], script.end()
            if words := _shown_words(match):
                return words, end
        if name in _INLINE:
            return "", end
        if name == "li":
            return self._replace_item(match)
        return " ", end

    def _replace_item(self, match: re.Match[str]) -> _Replacement:
        if match[0].startswith("</"):
            return ("; " if self._text.startswith(("<li", "<LI"), match.end()) else " "), match.end()
        begins_line = not self._line_before(match.start()).strip()
        return ("- " if begins_line else ""), match.end()

    def _replace_shortcode(self, match: re.Match[str]) -> _Replacement:
        closing = self._find(re.escape(_SHORTCODE_ENDS[match[0]]), match.end())
        if closing is None:
            return _keep(match)
        end = closing.end()
        body = self._text[match.end() : closing.start()].strip(" \t\n-")
        if "\n\n" in body:
            return _keep(match)
        if body.startswith("/*"):  # the documentation of shortcodes
            return f"{match[0]} {body.strip('/* ')} {closing[0]}", end
        name = body.partition(" ")[0].lower()
        if name in _VERBATIM or name == "comment":
            last = self._find(rf"\{{\{{?[<%]-?\s*(?:/\s*|end){name}\s*-?[%>]\}}\}}?", end)
            inside = self._text[end : last.start() if last else len(self._text)]
            return ("" if name == "comment" else inside), last.end() if last else len(self._text)
        words = self._shortcode_words(match.start(), end, name, body)
        return self._separate(words, match.start(), end), end

    def _separate(self, words: str, start: int, end: int) -> str:
        """Return the words of a shortcode, apart from those before and after it."""
        before, after = self._text[start - 1 : start], self._text[end : end + 1]
        if not words or self._line_before(start).endswith("]("):
            return words
        return f"{' ' if before.isalnum() or before == '}' else ''}{words}{': ' if after.isalnum() else ''}"

    def _shortcode_words(self, start: int, end: int, name: str, body: str) -> str:
        """Return what a page shows of a shortcode's arguments."""
        names = _SHOWN | {"name"} if name == "tab" else _SHOWN
        if words := " ".join(_arguments(body, names)):
            return words
        if version := _VERSION.search(body):
            return f"{name.replace('-', ' ')} {version[0]}"
        first = _FIRST_ARGUMENT.match(body)
        is_shown = name == "tab" or self._line_before(start).endswith("](") or self._is_heading(start, end)
        return first["value"] if first and is_shown else ""

    def _is_heading(self, start: int, end: int) -> bool:
        """Return whether a heading has nothing else."""
        before, after = self._line_before(start), self._text[end:].partition("\n")[0]
        return "#" in before and not before.strip(" #") and not after.strip()

    def _line_before(self, end: int) -> str:
        return self._text[self._text.rfind("\n", 0, end) + 1 : end]


def _keep(match: re.Match[str]) -> _Replacement:
    return match[0], match.end()


def _shown_words(tag: re.Match[str]) -> str:
    """Return what a page shows of the attributes of a picture or a component."""
    name = tag["name"]
    if name.lower() == "img":
        return " ".join(word for word in _arguments(tag["attributes"], {"alt"}) if not _PICTURE_FILE.fullmatch(word))
    is_component = name[0].isupper() and not name.isupper()
    return " ".join(_arguments(tag["attributes"], _SHOWN)) if is_component else ""


def _arguments(source: str, names: frozenset[str] | set[str]) -> Iterator[str]:
    for argument in _ARGUMENT.finditer(source):
        if argument["name"] in names and (value := argument["value"].strip()):
            yield html.unescape(value)


def _decode_entity(entity: str) -> str:
    text = clean(html.unescape(entity)).replace("\n", " ").replace("\xa0", " ")
    return "\\|" if text == "|" else text
