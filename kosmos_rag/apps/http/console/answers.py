"""View model of an answer: text with linked markers, and sources."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kosmos_rag.apps.http.console.links import source_url
from kosmos_rag.core.types import Answer, Citation, ContextPassage

_WRAPPED = re.compile(r"(?<=[^\s|])\n(?=[^\s|*>#+-])")
"""A line break within a paragraph: not before an item, a heading or a quote, and not in a table."""
_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```[^\S\n]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of an answer: text, a code block, or a marker."""

    text: str
    code: bool = False
    href: str | None = None
    """URL of a marker's source; None for other parts."""
    title: str = ""
    """Title and location of a marker's source."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A passage of the evidence."""

    marker: str
    title: str
    source: str
    location: str
    text: str
    tokens: int
    href: str
    cited: bool
    """Whether a sentence of the answer cites it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An answer as the page shows it."""

    answer: Answer
    parts: tuple[Part, ...]
    sources: tuple[Source, ...]

    @property
    def milliseconds(self) -> float:
        """Duration of the search for its evidence."""
        return self.answer.context.retrieval.timings_ms["total"]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the answer and of its search."""
        return (*self.answer.warnings, *self.answer.context.retrieval.warnings)


def build_reply(answer: Answer) -> Reply:
    """Build the view of an answer."""
    quotes: dict[int, list[Citation]] = {}
    for sentence in answer.sentences:
        quotes.setdefault(sentence.citation.index, []).append(sentence.citation)
    cited = {passage.citation.marker: passage.citation for passage in answer.context.passages}
    links = {marker: source_url(citation, quotes.get(citation.index, ())) for marker, citation in cited.items()}
    return Reply(
        answer=answer,
        parts=tuple(_parts(answer.text, cited, links)),
        sources=tuple(sources(answer.context.passages, quotes)),
    )


def sources(passages: Sequence[ContextPassage], quotes: Mapping[int, Sequence[Citation]]) -> Iterator[Source]:
    """Yield the passages of the evidence.

    `quotes` are the cited sentences by passage number.
    """
    for passage in passages:
        citation = passage.citation
        yield Source(
            marker=citation.marker,
            title=citation.title,
            source=citation.source,
            location=citation.location,
            text=passage.text,
            tokens=passage.tokens,
            href=source_url(citation, quotes.get(citation.index, ())),
            cited=citation.index in quotes,
        )


def _parts(text: str, cited: Mapping[str, Citation], links: Mapping[str, str]) -> Iterator[Part]:
    position = 0
    for fence in _FENCE.finditer(text):
        yield from _link_markers(text[position : fence.start()].rstrip("\n"), cited, links)
        yield Part(text=fence[1].rstrip("\n"), code=True)
        position = fence.end()
    yield from _link_markers(text[position:].lstrip("\n") if position else text, cited, links)


def _link_markers(text: str, cited: Mapping[str, Citation], links: Mapping[str, str]) -> Iterator[Part]:
    """Split a text at its markers, and link them."""
    if not cited:
        yield Part(text=_WRAPPED.sub(" ", text))
        return
    for fragment in re.split("(" + "|".join(map(re.escape, cited)) + ")", text):
        if fragment in cited:
            yield Part(
                text=fragment, href=links[fragment], title=f"{cited[fragment].title}, {cited[fragment].location}"
            )
        elif fragment:
            yield Part(text=_WRAPPED.sub(" ", fragment))
