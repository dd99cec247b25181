"""View model of an answer, complete or still being written."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote as quote_url

from markupsafe import Markup

from kosmos_rag.apps.http.console.document_text import join_wrapped_lines
from kosmos_rag.apps.http.console.links import Span, source_url
from kosmos_rag.apps.http.console.markdown import (
    UNSUPPORTED,
    MarkerLink,
    complete_markdown,
    extract_words,
    find_words,
    render_markdown,
)
from kosmos_rag.apps.http.console.rendering import render
from kosmos_rag.apps.http.toolkit.errors import problem_document, public_detail
from kosmos_rag.apps.http.toolkit.streaming import format_event, report_early_end
from kosmos_rag.core.types import Answer, AnswerEvent, AnswerPiece, AnswerSources, Citation, ContextPassage, Place, Turn
from kosmos_rag.core.types.serialize import to_dict
from kosmos_rag.engine.answers import recent_turns

_NEAREST = 3
"""Passages that a refusal shows."""
_CERTAIN_SIMILARITY = 0.7
"""Similarity of a generated sentence to its evidence below which the whole paragraph is marked. Set by hand."""
_UPDATE_S = 0.08
"""Shortest time between two updates of an answer that is being written."""

_SHOWN_PLACES = 3
"""Places of cited sentences that a source shows."""
_Quote = tuple[Citation, bool]
"""A quoted span, and whether its place is certain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceSource:
    """A passage of the evidence."""

    marker: str
    title: str
    source: str
    place: str
    text: str
    href: str
    web_address: str | None
    """Of the web page at the nearest heading; None for other sources."""
    cited: bool
    """Whether a sentence of the answer cites it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An answer as the page shows it."""

    answer: Answer
    html: Markup
    sources: tuple[EvidenceSource, ...]
    """Cited passages; of a refusal the most similar ones."""
    others: tuple[EvidenceSource, ...]
    copied: str
    """The text that is copied: the answer with its sources."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the answer and of its search."""
        return (*self.answer.warnings, *self.answer.context.retrieval.warnings)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionContext:
    """What the page of an answer says around it."""

    collection: str | None
    history: tuple[Turn, ...]
    """The conversation before the question."""
    history_turns: int
    """Turns that the next question may refer to."""
    may_inspect: bool

    def turns(self, answer: Answer) -> list[dict[str, Any]]:
        """Return the last turns with an answer, for the next question."""
        return [to_dict(turn) for turn in recent_turns([*self.history, answer.turn], self.history_turns)]


def build_reply(answer: Answer) -> Reply:
    """Build the view of an answer."""
    quotes: dict[int, list[_Quote]] = {}
    for sentence in answer.sentences:
        certain = answer.mode == "extractive" or sentence.score >= _CERTAIN_SIMILARITY
        quotes.setdefault(sentence.citation.index, []).append((sentence.citation, certain))
    sources = list(_sources(answer.context.passages, quotes))
    first = sources[:_NEAREST] if answer.refused else [source for source in sources if source.cited]
    others = [source for source in sources if source not in first]
    links = _links(answer.context.passages, quotes)
    return Reply(
        answer=answer,
        html=render_markdown(answer.text, links, spans=_find_unsupported_spans(answer, links), highlight=UNSUPPORTED),
        sources=tuple(first),
        others=tuple(others),
        copied=_format_for_copying(answer.text, [] if answer.refused else first),
    )


def _links(passages: Sequence[ContextPassage], quotes: Mapping[int, Sequence[_Quote]]) -> dict[str, MarkerLink]:
    return {
        passage.citation.marker: MarkerLink(
            href=_url(passage.citation, quotes),
            title=", ".join(filter(None, (passage.citation.title, place(passage.citation)))),
        )
        for passage in passages
    }


def _sources(passages: Sequence[ContextPassage], quotes: Mapping[int, Sequence[_Quote]]) -> Iterator[EvidenceSource]:
    """Yield the passages; `quotes` are the cited sentences by passage number."""
    for passage in passages:
        citation = passage.citation
        yield EvidenceSource(
            marker=citation.marker,
            title=citation.title,
            source=citation.source,
            place=_format_cited_places(citation, [quote for quote, _ in quotes.get(citation.index, ())]),
            text=passage.text if citation.page_start is None else join_wrapped_lines(passage.text),
            href=_url(citation, quotes),
            web_address=_web_address(citation),
            cited=citation.index in quotes,
        )


def _format_cited_places(citation: Citation, quotes: Sequence[Citation]) -> str:
    """Return the places of cited sentences, else that of the passage."""
    places = dict.fromkeys(place(cited) for cited in quotes[:_SHOWN_PLACES] or [citation])
    return "; ".join(filter(None, places))


def _web_address(citation: Citation) -> str | None:
    if not citation.source.startswith(("http://", "https://")):
        return None
    anchor = citation.place.anchor if citation.place else None
    return f"{citation.source.partition('#')[0]}#{quote_url(anchor, safe='%')}" if anchor else citation.source


def _url(citation: Citation, quotes: Mapping[int, Sequence[_Quote]]) -> str:
    marked_quotes = quotes.get(citation.index, ())
    return source_url(
        citation,
        [quote for quote, _ in marked_quotes],
        uncertain=[quote for quote, certain in marked_quotes if not certain],
    )


def place(citation: Citation) -> str:
    """Return the place of a citation in words."""
    location = citation.place or Place()
    labels = (citation.title, location.sheet, location.attachment)
    section = f"section {citation.section[-1]}" if citation.section and citation.section[-1] not in labels else ""
    container = replace(location, cells=None, paragraphs=None).words
    exact = replace(location, attachment=None, sheet=None).words
    page = ""
    if citation.page_start is not None:
        last = citation.page_end or citation.page_start
        page = f"page {last}" if last == citation.page_start else f"pages {citation.page_start} to {last}"
    return ", ".join(filter(None, (page, container, section, exact)))


def _find_unsupported_spans(answer: Answer, markers: Iterable[str]) -> list[Span]:
    """Return where the sentences are that the sources do not support."""
    if answer.report is None or answer.refused:
        return []
    names = list(markers)
    spans = (find_words(answer.text, extract_words(problem.text), without=names) for problem in answer.report.problems)
    return [_strip_heading(answer.text, span) for span in spans if span is not None]


def _strip_heading(text: str, span: Span) -> Span:
    """Return a span without a leading heading, unless it is all that there is."""
    start, end = span
    if not text.startswith("#", text.rfind("\n", 0, start) + 1):
        return span
    line_end = text.find("\n", start, end)
    return span if line_end < 0 else (line_end, end)


def _format_for_copying(text: str, sources: Sequence[EvidenceSource]) -> str:
    lines = [
        ", ".join(filter(None, (f"{source.marker} {source.title}", source.place, source.source))) for source in sources
    ]
    return "\n".join([text, *(["", "Sources:", *lines] if lines else [])])


class AnswerPageEvents:
    """Encodes an answer as parts of the page.

    Its sources come first, then the text so far, and at last the whole.

    Only the service renders and escapes: scripts put these parts into the page.
    """

    def __init__(self, question_context: QuestionContext) -> None:
        self._question_context = question_context
        self._links: dict[str, MarkerLink] = {}
        self._text = ""
        self._updated_at = 0.0

    def __call__(self, item: AnswerEvent | Exception) -> Sequence[bytes]:
        """Return the events of a part, or of a final error."""
        if isinstance(item, Exception):
            problem = report_early_end(item)
            return [format_event("error", problem_document(problem, public_detail(item, problem)))]
        if isinstance(item, AnswerSources):
            passages = item.context.passages
            self._links = _links(passages, {})
            html = render("answer_sources.html", question=item.question, sources=list(_sources(passages, {})))
            return [format_event("sources", {"html": html, "passages": len(passages)})]
        if isinstance(item, AnswerPiece):
            self._text += item.text
            if time.monotonic() - self._updated_at < _UPDATE_S:
                return []
            self._updated_at = time.monotonic()
            return [format_event("text", {"html": render_markdown(complete_markdown(self._text), self._links)})]
        return [
            format_event(
                "page",
                {
                    "html": render(
                        "answer.html", reply=build_reply(item.answer), question_context=self._question_context
                    )
                },
            )
        ]
