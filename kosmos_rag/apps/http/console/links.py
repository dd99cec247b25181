"""URLs of source pages: the cited lines, and the spans to highlight."""

import re
from collections.abc import Collection, Iterable, Sequence
from urllib.parse import urlencode

from kosmos_rag.core.types import Citation, Passage

Span = tuple[int, int]
"""Characters of a document's text, half open."""

_SPAN = re.compile(r"(\d{1,9})-(\d{1,9})")
_MAX_MARKS = 20


def source_url(
    passage: Citation | Passage, quotes: Iterable[Citation] = (), *, uncertain: Collection[Citation] = ()
) -> str:
    """Return the URL of the source page at a passage.

    Args:
        quotes: what to mark in it; empty for the whole passage.
        uncertain: those of the quotes whose whole paragraph is marked.
    """
    marked: Sequence[Citation | Passage] = list(quotes) or [passage]
    query = [
        ("version", str(passage.version)),
        ("line", str(marked[0].line_start)),
        ("span", f"{passage.start}-{passage.end}"),
        *(("near" if quote in uncertain else "mark", f"{quote.start}-{quote.end}") for quote in marked[:_MAX_MARKS]),
    ]
    return f"/documents/{passage.document_id}?{urlencode(query)}#cited"


def parse_span(text: str | None) -> Span | None:
    """Parse a span of a URL; None where it is malformed."""
    match = _SPAN.fullmatch(text or "")
    return (int(match[1]), int(match[2])) if match and int(match[1]) <= int(match[2]) else None


def parse_spans(texts: Sequence[str]) -> list[Span]:
    """Parse the spans of a URL."""
    return [span for text in texts[:_MAX_MARKS] if (span := parse_span(text)) is not None]
