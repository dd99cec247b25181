"""An answer for reading: its text with each marker a link to the source, and the sources that it was made of."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kosmos_rag.apps.http.console.links import place_of
from kosmos_rag.core.types import Answer, Citation, ContextPassage

_WRAPPED = re.compile(r"(?<=[^\s|])\n(?=[^\s|*>#+-])")
"""The end of a line within a paragraph: not before an item, a heading or a quote, and not at a row of a table."""
_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```[^\S\n]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A stretch of an answer: text, a block of code, or a marker."""

    text: str
    code: bool = False
    href: str | None = None
    """Where a marker leads; None of what is no marker."""
    title: str = ""
    """What a marker leads to."""


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
    """Whether the answer is made of it, or borne out by it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An answer as a page shows it."""

    answer: Answer
    parts: tuple[Part, ...]
    sources: tuple[Source, ...]

    @property
    def milliseconds(self) -> float:
        """How long its evidence took to find."""
        return self.answer.context.retrieval.timings_ms["total"]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its reader should know."""
        return (*self.answer.warnings, *self.answer.context.retrieval.warnings)


def reply(answer: Answer) -> Reply:
    """Return an answer for a page."""
    quotes: dict[int, list[Citation]] = {}
    for sentence in answer.sentences:
        quotes.setdefault(sentence.citation.index, []).append(sentence.citation)
    cited = {passage.citation.marker: passage.citation for passage in answer.context.passages}
    links = {marker: place_of(one, quotes.get(one.index, ())) for marker, one in cited.items()}
    return Reply(
        answer=answer,
        parts=tuple(_parts(answer.text, cited, links)),
        sources=tuple(sources(answer.context.passages, quotes)),
    )


def sources(passages: Sequence[ContextPassage], quotes: Mapping[int, Sequence[Citation]]) -> Iterator[Source]:
    """Yield the passages of the evidence; `quotes` are what the answer takes from each, by its number."""
    for passage in passages:
        citation = passage.citation
        yield Source(
            marker=citation.marker,
            title=citation.title,
            source=citation.source,
            location=citation.location,
            text=passage.text,
            tokens=passage.tokens,
            href=place_of(citation, quotes.get(citation.index, ())),
            cited=citation.index in quotes,
        )


def _parts(text: str, cited: Mapping[str, Citation], links: Mapping[str, str]) -> Iterator[Part]:
    at = 0
    for block in _FENCE.finditer(text):
        yield from _linked(text[at : block.start()].rstrip("\n"), cited, links)
        yield Part(text=block[1].rstrip("\n"), code=True)
        at = block.end()
    yield from _linked(text[at:].lstrip("\n") if at else text, cited, links)


def _linked(text: str, cited: Mapping[str, Citation], links: Mapping[str, str]) -> Iterator[Part]:
    """Cut a text where markers stand."""
    if not cited:
        yield Part(text=_WRAPPED.sub(" ", text))
        return
    for piece in re.split("(" + "|".join(map(re.escape, cited)) + ")", text):
        if piece in cited:
            yield Part(text=piece, href=links[piece], title=f"{cited[piece].title}, {cited[piece].location}")
        elif piece:
            yield Part(text=_WRAPPED.sub(" ", piece))
