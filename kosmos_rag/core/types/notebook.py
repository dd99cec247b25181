"""Show records in notebooks: HTML fragments in which every text is escaped."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kosmos_rag.core.types import Answer, Context, Passage, SearchResult

_MAX_CHARS = 400
"""Characters of a text that a table shows."""


def search_result_html(result: "SearchResult") -> str:
    """Return the hits as a table, with warnings below it."""
    rows = [(str(hit.rank), _source(hit.source, hit.location), _shorten(hit.text), _score(hit)) for hit in result.hits]
    notes = [*result.warnings, *([result.incomplete_reason] if result.incomplete_reason else [])]
    count = f"{len(result.hits)} of {result.requested} hits"
    return _heading(result.question, count) + _table(("rank", "source", "text", "score"), rows) + _notes(notes)


def context_html(context: "Context") -> str:
    """Return the numbered passages as a table."""
    rows = [
        (passage.citation.marker, _source(passage.citation.source, passage.citation.location), _shorten(passage.text))
        for passage in context.passages
    ]
    count = f"{context.tokens} of {context.max_tokens} tokens"
    return _heading(context.question, count) + _table(("marker", "source", "text"), rows)


def answer_html(answer: "Answer") -> str:
    """Return the answer with its citations as a table."""
    cited = {citation.marker: citation for citation in answer.citations}
    rows = [(marker, _source(citation.source, citation.location), citation.title) for marker, citation in cited.items()]
    outcome = "refused" if answer.refused else answer.mode
    text = f"<p>{escape(answer.text)}</p>"
    table = _table(("marker", "source", "title"), rows) if rows else ""
    return _heading(answer.question, outcome) + text + table + _notes(answer.warnings)


def _source(source: str, location: str) -> str:
    return f"{source} | {location}"


def _score(hit: "Passage") -> str:
    return "" if math.isnan(hit.score) else f"{hit.score:.3f}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def _heading(question: str, detail: str) -> str:
    return f"<p><b>{escape(question)}</b> ({escape(detail)})</p>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _notes(notes: Iterable[str]) -> str:
    return "".join(f"<p>{escape(note)}</p>" for note in notes)
