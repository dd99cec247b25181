"""Parse source code.

The text is unchanged; definitions are the headings of the lines after them. They are found by the grammar of the
language where it is installed, else by words at the beginning of lines.
"""

import re
from collections.abc import Iterator

from kosmos_rag.core.types import Heading, ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.clean import TAB, clean_title
from kosmos_rag.parsing.text.decode import decode
from kosmos_rag.parsing.text.definitions import find_definitions, has_grammar

_MODIFIERS = (
    "abstract async case const data default export final fileprivate implicit inline internal open override partial "
    r"private protected pub(?:\(\w+\))? public readonly sealed static suspend unsafe"
)
_KEYWORDS = {
    "text/javascript": r"class function\*?",
    "text/x-csharp": "class enum interface record struct",
    "text/x-go": r"func(?:\s\([^()\n]*\))? type",
    "text/x-java": "class enum interface record",
    "text/x-kotlin": "class fun interface object",
    "text/x-lua": "function",
    "text/x-perl": "package sub",
    "text/x-php": "class enum function interface trait",
    "text/x-powershell": "function",
    "text/x-python": "class def",
    "text/x-ruby": "class def module",
    "text/x-rust": r"enum fn impl(?:<[^<>\n]*>)? mod struct trait",
    "text/x-scala": "class def object trait",
    "text/x-swift": "class enum extension func protocol struct",
    "text/x-typescript": r"class enum function\*? interface namespace",
}
"""Starts of definitions that a word at the beginning of a line marks. C has none, nor R."""

# A name, and then what follows one: in the prose of a comment another word does.
_DEFINITION = (
    r"^(?P<indent>[ \t]*)(?:(?:{modifiers})[ \t]+)*(?P<title>(?:{keywords})[ \t]+[\w.:$?!-]*\w[?!]?)(?={after})"
)
_AFTER = r"[ \t]*(?:$|[({<\[:;=]|(?:extends|for|implements|interface|struct|where)\b)"
_SHELL = r"^(?P<indent>[ \t]*)(?P<title>(?:function[ \t]+)?[\w:-]+)(?=[ \t]*\(\))"
_SQL = r"^(?P<indent>)(?:--[ \t]*name:[ \t]*(?P<name>\S.*)|(?P<title>CREATE[ \t][^\n(;]{1,200}))"
_SQL_BODY = re.compile(r"\sAS(?:\s.*)?$", re.IGNORECASE)
"""Where the head of a statement ends when no parenthesis ends it."""


def _pattern(keywords: str) -> re.Pattern[str]:
    parts = {"modifiers": _MODIFIERS.replace(" ", "|"), "keywords": keywords.replace(" ", "|"), "after": _AFTER}
    return re.compile(_DEFINITION.format(**parts), re.MULTILINE)


_PATTERNS = {media_type: _pattern(keywords) for media_type, keywords in _KEYWORDS.items()} | {
    "text/x-shellscript": re.compile(_SHELL, re.MULTILINE),
    media_types.SQL: re.compile(_SQL, re.MULTILINE | re.IGNORECASE),
}


def parse_code(data: bytes, *, media_type: str) -> ParsedDocument:
    """Parse source code, with functions and types as headings.

    In SQL: `CREATE` statements and `-- name:` lines.

    Raises:
        ParseError: `empty` or `binary`.
    """
    text = decode(data)
    if has_grammar(media_type) and (definitions := find_definitions(text, media_type)):
        return ParsedDocument(text=text, media_type=media_type, headings=tuple(definitions))
    pattern = _PATTERNS.get(media_type)
    headings = tuple(_headings(text, pattern)) if pattern else ()
    return ParsedDocument(text=text, media_type=media_type, headings=headings)


def _headings(text: str, pattern: re.Pattern[str]) -> Iterator[Heading]:
    for match in pattern.finditer(text):
        groups = match.groupdict()
        head = groups["title"] or groups["name"]
        if title := clean_title(_SQL_BODY.sub("", head) if pattern is _PATTERNS[media_types.SQL] else head):
            level = min(1 + len(groups["indent"].expandtabs(TAB)) // TAB, bounds.MAX_HEADING_LEVEL)
            yield Heading(level=level, title=title, start=match.start())
