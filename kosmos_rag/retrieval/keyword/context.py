"""The context of a query: the paragraphs that match its words best, or what is given where none does."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Literal, Protocol, Self, get_args

from kosmos_rag.core.errors import IngestionError, ParseError, RequestError
from kosmos_rag.retrieval.keyword.classic import ClassicRanking
from kosmos_rag.retrieval.keyword.paragraphs import Paragraph, split_paragraphs
from kosmos_rag.retrieval.keyword.text_file import read_text

Ranking = Literal["bm25", "classic"]

_UNMATCHED_PARAGRAPHS = 10

log = logging.getLogger("kosmos_rag.retrieval.keyword")


class Texts(Protocol):
    """A body of documents whose texts can be read: a `Tenant` is one."""

    def texts(self) -> Iterable[tuple[str, str]]:
        """Return source and text of each document."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A paragraph that matches a query."""

    text: str
    score: float
    """Above 0; scores of one query can be compared, those of different queries or rankings cannot."""
    source: str | None
    """The file or document that it stands in; None for a text that was given as it is."""
    line_start: int
    """Counts from 1."""
    line_end: int


class _Scorer(Protocol):
    def scores(self, query: str) -> Sequence[float]: ...


class KeywordContext:
    """Finds the paragraphs of a text by their words. Thread-safe; the text is read once, when it is made.

    context = KeywordContext.from_file("schema_docs.txt")
    prompt = f"{context.get_context('show total sales by region')}\\n\\n{question}"
    """

    def __init__(
        self, paragraphs: Sequence[Paragraph], *, ranking: Ranking = "bm25", fallback: str | None = None
    ) -> None:
        """Make a context of paragraphs.

        `fallback` is the context where there are none. Raises ParseError (`empty`) where there are none and no
        fallback, RequestError on a blank fallback and on an unknown ranking.
        """
        if ranking not in get_args(Ranking):
            raise RequestError(f"ranking is {ranking!r}; choose one of {', '.join(get_args(Ranking))}")
        if fallback is not None and not fallback.strip():
            raise RequestError(f"fallback is {fallback!r}; give a text, or None to have an empty file refused")
        if paragraphs:
            self._unmatched = _context(paragraphs[:_UNMATCHED_PARAGRAPHS])
        elif fallback is not None:
            self._unmatched = fallback
        else:
            raise ParseError("empty", "there is no paragraph to search in; give text that is not blank, or a fallback")
        self._paragraphs = tuple(paragraphs)
        self._ranking = _scorer([paragraph.text for paragraph in self._paragraphs], ranking)

    @classmethod
    def from_file(cls, path: str | Path, *, ranking: Ranking = "bm25", fallback: str | None = None) -> Self:
        """Make a context of a text file.

        With a `fallback`, a file that cannot be used is logged and not an error. Raises SourceError, ParseError, and
        RequestError as the constructor does.
        """
        try:
            text = read_text(Path(path))
        except IngestionError as error:
            if fallback is None:
                raise
            log.warning("%s; its fallback is the context", error, extra={"action": "keyword_fallback"})
            text = ""
        return cls(list(split_paragraphs(text, str(path))), ranking=ranking, fallback=fallback)

    @classmethod
    def from_text(cls, text: str, *, ranking: Ranking = "bm25", fallback: str | None = None) -> Self:
        """Make a context of a text. Raises what the constructor raises."""
        return cls(list(split_paragraphs(text)), ranking=ranking, fallback=fallback)

    @classmethod
    def from_tenant(cls, scope: Texts, *, ranking: Ranking = "bm25", fallback: str | None = None) -> Self:
        """Make a context of the documents that a reader may read: of a tenant, or of one collection of it.

        Raises DatabaseError, RequestError where an audit log is kept, and what the constructor raises.
        """
        found = [paragraph for source, text in scope.texts() for paragraph in split_paragraphs(text, source)]
        return cls(found, ranking=ranking, fallback=fallback)

    @property
    def paragraphs(self) -> tuple[Paragraph, ...]:
        """What is searched, in the order of the text."""
        return self._paragraphs

    def search(self, query: str, k: int = 5) -> list[Match]:
        """Return the best `k` of the paragraphs that match, best first.

        Equal ones in the order of the text. Raises RequestError on a blank query and on a `k` below 1.
        """
        if not query.strip():
            raise RequestError("the query is empty; ask something")
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise RequestError(f"k is {k!r}; ask for at least 1 paragraph")
        scored = zip(self._ranking.scores(query), self._paragraphs, strict=True)
        best = nlargest(k, (pair for pair in scored if pair[0] > 0), key=itemgetter(0))
        return [_match(score, paragraph) for score, paragraph in best]

    def get_context(self, query: str, k: int = 5) -> str:
        """Return the texts of the matches, with a blank line between them.

        Never an empty text. Where nothing matches, the first ten paragraphs; where there are none, the fallback. Raises
        as `search` does.
        """
        found = self.search(query, k)
        return _context(found) if found else self._unmatched


def _context(pieces: Sequence[Paragraph | Match]) -> str:
    return "\n\n".join(piece.text for piece in pieces)


def _match(score: float, paragraph: Paragraph) -> Match:
    return Match(
        text=paragraph.text,
        score=score,
        source=paragraph.source,
        line_start=paragraph.line_start,
        line_end=paragraph.line_end,
    )


def _scorer(texts: Sequence[str], ranking: Ranking) -> _Scorer:
    if ranking == "classic":
        return ClassicRanking(texts)
    # Imports NumPy, which the classic ranking does without.
    from kosmos_rag.retrieval.keyword.bm25 import Bm25Ranking

    return Bm25Ranking(texts)
