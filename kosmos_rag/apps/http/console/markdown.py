"""Markdown as HTML.

Markup in a text stays text, and the only links are those of citation markers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from kosmos_rag.apps.http.console.links import Span

# Characters for private use: they open and close a highlighted part while Markdown is parsed.
_OPEN, _CLOSE = "\ue000", "\ue001"
_RESERVED = str.maketrans({_OPEN: "\ufffd", _CLOSE: "\ufffd"})
_FENCE = re.compile(r"\s*(?:```|~~~)")
_BLOCK_PREFIX = re.compile(r"\s*(?:(?:[-+*>|]|#{1,6}|\d{1,9}[.)])\s+)*")
_WORD = re.compile(r"[^\W_]+")
TABLE = ('<div class="scroll" tabindex="0" role="region" aria-label="Table">', "</div>")
_TOP_LEVEL = 3
"""The level of the highest heading within a text: the page has the others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkerLink:
    """The link of a citation marker."""

    href: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Highlight:
    """How highlighted parts of a text look."""

    class_name: str
    note: str = ""
    """Text after each part for screen readers."""


CITED = Highlight(class_name="cited")
UNSUPPORTED = Highlight(class_name="unsupported", note=" (not supported by the sources)")


def render_markdown(
    text: str,
    links: Mapping[str, MarkerLink],
    *,
    spans: Iterable[Span] = (),
    highlight: Highlight = CITED,
) -> Markup:
    """Render Markdown with linked citation markers and highlighted spans.

    Args:
        links: links by marker, as the text writes it.
        spans: characters of the text to highlight.
    """
    source = _insert_highlight_signs(text.translate(_RESERVED), spans, without=links)
    signs = "|".join(map(re.escape, [*links, _OPEN, _CLOSE]))
    env: dict[str, Any] = {"links": links, "signs": re.compile(f"({signs})"), "highlight": highlight, "open": False}
    tokens = _parser().parse(source)
    set_heading_levels(tokens)
    # Every text of a token is escaped by the rules below.
    return Markup(_html(tokens, env))  # noqa: S704


def complete_markdown(text: str) -> str:
    """Complete the Markdown of a text that is still being written.

    Open emphasis is closed; an unfinished marker, and a table without rows, are left out.
    """
    if sum(1 for line in text.split("\n") if _FENCE.match(line)) % 2:
        return text
    text = re.sub(r"(?:[*_`]+|\[\w{0,3})$", "", text)
    lines = text.split("\n")
    table = next((number for number, line in enumerate(reversed(lines)) if not line.startswith("|")), len(lines))
    if 0 < table < 3:
        lines = lines[: len(lines) - table]
    paragraph = lines[-1] if lines else ""
    for sign in ("`", "**", "*"):
        outside = re.sub(r"\*\*", "", paragraph) if sign == "*" else paragraph
        if len(re.findall(rf"(?<!^){re.escape(sign)}|^{re.escape(sign)}(?=\S)", outside)) % 2:
            paragraph += sign
    return "\n".join([*lines[:-1], paragraph])


def find_words(text: str, words: Sequence[str], *, without: Iterable[str] = ()) -> Span | None:
    """Find words that follow one another in a text.

    Anything but a word may be between them.

    Args:
        without: parts of the text to skip, such as markers.
    """
    matches = list(_WORD.finditer(_blank(text, without)))
    names = [match.group() for match in matches]
    phrase = list(words)
    for first in range(len(names) - len(phrase) + 1):
        if phrase and names[first : first + len(phrase)] == phrase:
            return matches[first].start(), matches[first + len(phrase) - 1].end()
    return None


def _blank(text: str, parts: Iterable[str]) -> str:
    """Return a text with spaces instead of parts."""
    for part in parts:
        text = text.replace(part, " " * len(part))
    return text


def extract_words(text: str) -> list[str]:
    """Return the words of a text without its Markdown."""
    return _WORD.findall(text)


def _insert_highlight_signs(text: str, spans: Iterable[Span], *, without: Iterable[str]) -> str:
    """Put signs around each highlighted part of each line.

    They are next to words, so that headings, items, tables and emphasis are still recognized, and never in a marker.
    """
    searched = _blank(text, without)
    places: list[tuple[int, str]] = []
    start, fenced = 0, False
    merged_spans = merge_spans(spans)
    for line in text.split("\n"):
        is_fence = _FENCE.match(line) is not None
        fenced ^= is_fence
        prefix = _BLOCK_PREFIX.match(line)
        body = start if fenced or prefix is None else start + prefix.end()
        for first, last in [] if is_fence else merged_spans:
            words = list(_WORD.finditer(searched, max(first, body), max(body, min(last, start + len(line)))))
            if words:
                places += [(words[0].start(), _OPEN), (words[-1].end(), _CLOSE)]
        start += len(line) + 1
    for position, sign in sorted(places, reverse=True):
        text = text[:position] + sign + text[position:]
    return text


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge spans that overlap, and sort them."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def set_heading_levels(tokens: Sequence[Token], top: int = _TOP_LEVEL) -> None:
    """Number the levels of headings without a gap, from `top`."""
    headings = [token for token in tokens if token.type in {"heading_open", "heading_close"}]
    ranks = {tag: rank for rank, tag in enumerate(sorted({token.tag for token in headings}))}
    level = top - 1
    for token in headings:
        if token.nesting > 0:
            level = min(top + ranks[token.tag], level + 1, 6)
        token.tag = f"h{level}"


def _html(tokens: Sequence[Token], env: dict[str, Any]) -> str:
    """Render tokens without attributes, except the first number of a list."""
    parts = []
    for token in tokens:
        if token.type == "inline":
            parts.append(_html(token.children or [], env))
        elif token.nesting == 0:
            parts.append(_leaf(token, env))
        elif not token.hidden:
            parts.append(element_tag(token))
    return "".join(parts)


def _leaf(token: Token, env: dict[str, Any]) -> str:
    if token.type in {"softbreak", "hardbreak"}:
        return "\n" if token.type == "softbreak" else "<br>\n"
    if token.type == "hr":
        return "<hr>\n"
    if token.type == "code_inline":
        return f"<code>{_inline(token.content, env, linked=False)}</code>"
    if token.type in {"fence", "code_block"}:
        return f'<pre tabindex="0"><code>{_inline(token.content, env, linked=False)}</code></pre>\n'
    return _inline(token.content, env)


def element_tag(token: Token) -> str:
    """Render the start or the end of an element, without attributes."""
    name = token.tag
    before, after = TABLE if name == "table" else ("", "")
    line_end = "\n" if token.block else ""
    if token.nesting < 0:
        return f"</{name}>{after}{line_end}"
    start = f' start="{int(token.attrs["start"])}"' if "start" in token.attrs else ""
    return f"{before}<{name}{start}>"


def _inline(text: str, env: dict[str, Any], *, linked: bool = True) -> str:
    """Render a text.

    A highlighted part that continues in the next token is closed here and opened there.
    """
    highlight: Highlight = env["highlight"]
    opening = f'<mark class="{highlight.class_name}">'
    note = f'<span class="hidden">{highlight.note}</span>' if highlight.note else ""
    parts = [opening] if env["open"] else []
    for fragment in env["signs"].split(text):
        link = env["links"].get(fragment) if linked else None
        if fragment in {_OPEN, _CLOSE}:
            env["open"] = fragment == _OPEN
            parts.append(opening if env["open"] else f"</mark>{note}")
        elif link is not None:
            parts.append(
                f'<a class="marker" href="{escape(link.href)}" title="{escape(link.title)}" data-source>'
                f"{escape(fragment)}</a>"
            )
        else:
            parts.append(escape(fragment))
    return "".join(parts) + ("</mark>" if env["open"] else "")


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    # A document or a model must not make readers fetch from, or go to, other hosts.
    return parser.disable(["link", "image", "autolink", "reference", "html_block", "html_inline", "lheading"])
