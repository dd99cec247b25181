"""Where a citation points: the address of the source page, at the lines, with the spans that are marked."""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from kosmos_rag.core.types import Citation, Passage

Span = tuple[int, int]
"""Characters of a document's text, half open."""

_SPAN = re.compile(r"(\d{1,9})-(\d{1,9})")
_MOST_MARKS = 20


def place_of(cited: Citation | Passage, quotes: Iterable[Citation] = ()) -> str:
    """Return the address that opens a source at a passage; `quotes` are the parts of it that are marked, else all."""
    marked: Sequence[Citation | Passage] = list(quotes) or [cited]
    query = [
        ("version", str(cited.version)),
        ("line", str(marked[0].line_start)),
        ("span", f"{cited.start}-{cited.end}"),
        *(("mark", f"{one.start}-{one.end}") for one in marked[:_MOST_MARKS]),
    ]
    return f"/documents/{cited.document_id}?{urlencode(query)}#cited"


def span_of(text: str | None) -> Span | None:
    """Return the span that an address names; None where it names none."""
    found = _SPAN.fullmatch(text or "")
    return (int(found[1]), int(found[2])) if found and int(found[1]) <= int(found[2]) else None


def spans_of(texts: Sequence[str]) -> list[Span]:
    """Return the spans that an address names."""
    return [span for text in texts[:_MOST_MARKS] if (span := span_of(text)) is not None]
