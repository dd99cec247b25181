"""Keyword context of a query: the best matching paragraphs, or a fallback."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Literal, Protocol, Self, get_args

from kosmos_rag.core.errors import IngestionError, ParseError, RequestError
from kosmos_rag.retrieval.keyword.classic import ClassicRanking
from kosmos_rag.retrieval.keyword.paragraphs import Paragraph, read_text, split_paragraphs

Ranking = Literal["bm25", "classic"]

_UNMATCHED_PARAGRAPHS = 10

log = logging.getLogger("kosmos_rag.retrieval.keyword")


class Texts(Protocol):
    """Documents whose texts can be read; a `Tenant` is one."""

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
    """Its file or document; None for a text passed by the caller."""
    line_start: int
    """Counts from 1."""
    line_end: int


class _Scorer(Protocol):
    def scores(self, query: str) -> Sequence[float]: ...


class KeywordContext:
    r"""Searches the paragraphs of a text by words. Thread-safe.

    The text is read once, at construction.

    context = KeywordContext.from_file("schema_docs.txt")
    prompt = f"{context.get_context('show total sales by region')}\n\n{question}"
    """

    def __init__(
        self, paragraphs: Sequence[Paragraph], *, ranking: Ranking = "bm25", fallback: str | None = None
    ) -> None:
        """Create a context from paragraphs.

        Args:
            paragraphs: The paragraphs to search.
            ranking: `bm25` or `classic`.
            fallback: The context if there are no paragraphs.

        Raises:
            ParseError: `empty`: there are no paragraphs and no fallback.
            RequestError: The fallback is blank, or the ranking unknown.
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
        """Create a context from a text file.

        Also raises RequestError as the constructor does.

        Args:
            ranking: `bm25` or `classic`.
            fallback: The context if the file cannot be used; the error is then logged and not raised.

        Raises:
            SourceError: The file cannot be read.
            ParseError: The file is not text, or blank.
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
        """Create a context from a text. Raises as the constructor does."""
        return cls(list(split_paragraphs(text)), ranking=ranking, fallback=fallback)

    @classmethod
    def from_tenant(cls, scope: Texts, *, ranking: Ranking = "bm25", fallback: str | None = None) -> Self:
        """Create a context from the documents that a reader may read.

        Raises DatabaseError, RequestError if an audit log is kept, and as the constructor does.

        Args:
            scope: A tenant as its reader sees it; all its texts are read once.
            ranking: `bm25` or `classic`.
            fallback: The context if there are no paragraphs.
        """
        paragraphs = [paragraph for source, text in scope.texts() for paragraph in split_paragraphs(text, source)]
        return cls(paragraphs, ranking=ranking, fallback=fallback)

    @property
    def paragraphs(self) -> tuple[Paragraph, ...]:
        """The searched paragraphs, in text order."""
        return self._paragraphs

    def search(self, query: str, k: int = 5) -> list[Match]:
        """Return the best `k` matching paragraphs; ties in text order.

        Raises RequestError on a blank query and on a `k` below 1.
        """
        if not query.strip():
            raise RequestError("the query is empty; ask something")
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise RequestError(f"k is {k!r}; ask for at least 1 paragraph")
        scored = zip(self._ranking.scores(query), self._paragraphs, strict=True)
        best = nlargest(k, (pair for pair in scored if pair[0] > 0), key=itemgetter(0))
        return [_match(score, paragraph) for score, paragraph in best]

    def get_context(self, query: str, k: int = 5) -> str:
        """Return the texts of the matches, separated by blank lines.

        Never empty: without a match the first ten paragraphs, and without paragraphs the fallback. Raises as `search`
        does.
        """
        matches = self.search(query, k)
        return _context(matches) if matches else self._unmatched


def _context(paragraphs: Sequence[Paragraph | Match]) -> str:
    return "\n\n".join(paragraph.text for paragraph in paragraphs)


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
