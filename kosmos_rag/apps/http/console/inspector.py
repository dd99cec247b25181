"""View model of the inspector: rankings, fusion, score parts and timings.

Templates draw the geometry: bars in percent of a width of 100, lines in pixels of height.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kosmos_rag.apps.http.console.links import source_url
from kosmos_rag.core.types import Passage, RetrieverStats, SearchResult

RANKING_ROW_HEIGHT = 34
"""Height in pixels of a row of a ranking; the style sheet has the same."""
HIT_ROW_HEIGHT = 64
"""Height in pixels of a row of the hits; the style sheet has the same."""
_EXCERPT = 240
_REMAINDER = "rest"
_MIN_LABEL_WIDTH = 7
"""Percent of the total time that a stage needs for its name to fit on the bar."""
_DENSE, _LEXICAL, _OTHER = "dense", "lexical", "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A segment of a bar."""

    x: float
    width: float
    kind: str
    """How it is drawn: `dense`, `lexical`, `other`, `base`, `plus`, `minus`, `rerank`."""
    tooltip: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedHit:
    """A hit in one of the rankings."""

    number: int
    """The hit's final rank, which identifies it."""
    rank: int
    score: float
    hit: Passage
    gap: bool
    """Whether candidates that are not among the hits rank before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A line that connects two rows."""

    number: int
    path: str
    strength: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Retriever:
    """The ranking of a retriever, and the lines to the fused ranking."""

    name: str
    explain: RetrieverStats | None
    entries: tuple[RankedHit, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A row of the final ranking."""

    hit: Passage
    href: str
    moved: int
    """Ranks gained since fusion; negative where it fell."""
    score_contributions: tuple[Bar, ...]
    rerank: tuple[Bar, ...]
    signals: tuple[Bar, ...]
    excerpt: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StageDuration:
    """A stage of the search and its duration."""

    name: str
    milliseconds: float
    bar: Bar
    shade: float
    labelled: bool
    """Whether its name fits on the bar."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """A search result as the page shows it."""

    result: SearchResult
    dense: Retriever
    lexical: Retriever
    fused: tuple[RankedHit, ...]
    slopes: tuple[Link, ...]
    """Lines from the fused ranking to the final one."""
    hits: tuple[Hit, ...]
    stages: tuple[StageDuration, ...]
    others: Mapping[str, RetrieverStats]
    """Further retrievers: other wordings, and pseudo-relevance feedback."""
    zero_x: float
    """Position of 0 on the bars of signals, in percent."""

    @property
    def reranked(self) -> bool:
        """Whether a reranker scored any hit."""
        return any(hit.rerank_score is not None for hit in self.result.hits)

    @property
    def moved_by_signals(self) -> bool:
        """Whether signals changed any score."""
        return any(hit.signals for hit in self.result.hits)

    @property
    def rankings_height(self) -> int:
        """Height of the rankings in pixels."""
        return RANKING_ROW_HEIGHT * max(1, len(self.fused))

    @property
    def hits_height(self) -> int:
        """Height of the hits in pixels."""
        return HIT_ROW_HEIGHT * max(1, len(self.hits))


def inspect_result(result: SearchResult) -> Inspection:
    """Build the view of a search result."""
    hits = result.hits
    fused = _list(hits, lambda hit: hit.fused_rank, lambda hit: hit.fused_score)
    row_by_rank = {entry.number: row for row, entry in enumerate(fused)}
    low, high = _value_range([_signal_parts(hit) for hit in hits])
    max_score = max((sum(hit.score_contributions.values()) for hit in hits), default=0.0) or 1.0
    return Inspection(
        result=result,
        dense=_retriever(
            _DENSE, result, row_by_rank, lambda hit: hit.dense_rank, lambda hit: hit.dense_score, mirrored=False
        ),
        lexical=_retriever(
            _LEXICAL, result, row_by_rank, lambda hit: hit.lexical_rank, lambda hit: hit.lexical_score, mirrored=True
        ),
        fused=tuple(fused),
        slopes=tuple(_slopes(hits, row_by_rank)),
        hits=tuple(
            Hit(
                hit=hit,
                href=source_url(hit),
                moved=row_by_rank[hit.rank] - row,
                score_contributions=tuple(_stack_bars(_share_parts(hit), 0.0, max_score)),
                rerank=_rerank(hit),
                signals=tuple(_stack_bars(_signal_parts(hit), low, high)) if hit.signals else (),
                excerpt=_excerpt(hit.text),
            )
            for row, hit in enumerate(hits)
        ),
        stages=tuple(_stages(result.timings_ms)),
        others={name: retriever for name, retriever in result.retrievers.items() if name not in {_DENSE, _LEXICAL}},
        zero_x=-low / (high - low) * 100,
    )


def _excerpt(text: str) -> str:
    # The page shows the headings separately.
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return " ".join(" ".join(lines or [text]).split())[:_EXCERPT]


def _list(
    hits: Sequence[Passage], rank: Callable[[Passage], int | None], score: Callable[[Passage], float | None]
) -> list[RankedHit]:
    ranking = sorted((position, hit.rank, hit) for hit in hits if (position := rank(hit)) is not None)
    entries: list[RankedHit] = []
    for position, number, hit in ranking:
        previous_rank = entries[-1].rank if entries else 0
        entries.append(
            RankedHit(number=number, rank=position, score=score(hit) or 0.0, hit=hit, gap=position > previous_rank + 1)
        )
    return entries


def _retriever(
    name: str,
    result: SearchResult,
    row_by_rank: Mapping[int, int],
    rank: Callable[[Passage], int | None],
    score: Callable[[Passage], float | None],
    *,
    mirrored: bool,
) -> Retriever:
    entries = _list(result.hits, rank, score)
    links = []
    for row, entry in enumerate(entries):
        ends = (_row_center(row, RANKING_ROW_HEIGHT), _row_center(row_by_rank[entry.number], RANKING_ROW_HEIGHT))
        left, right = reversed(ends) if mirrored else ends
        links.append(Link(number=entry.number, path=_curve(left, right), strength=_strength(entry.rank)))
    return Retriever(name=name, explain=result.retrievers.get(name), entries=tuple(entries), links=tuple(links))


def _slopes(hits: Sequence[Passage], row_by_rank: Mapping[int, int]) -> Iterator[Link]:
    for row, hit in enumerate(hits):
        path = _curve(_row_center(row_by_rank[hit.rank], HIT_ROW_HEIGHT), _row_center(row, HIT_ROW_HEIGHT))
        yield Link(number=hit.rank, path=path, strength=_strength(hit.rank))


def _row_center(row: int, height: int) -> float:
    return (row + 0.5) * height


def _curve(left: float, right: float) -> str:
    return f"M0 {left:g}C45 {left:g} 55 {right:g} 100 {right:g}"


def _strength(rank: int) -> float:
    """Return the opacity of a line.

    The first ranks contribute most to a fused score.
    """
    return round(0.3 + 0.7 / math.sqrt(rank), 2)


def _share_parts(hit: Passage) -> list[tuple[str, str, float]]:
    kinds = {_DENSE: _DENSE, _LEXICAL: _LEXICAL}
    return [(kinds.get(name.partition(" ")[0], _OTHER), name, share) for name, share in hit.score_contributions.items()]


def _signal_parts(hit: Passage) -> list[tuple[str, str, float]]:
    if not hit.signals:
        return []
    base = hit.score - sum(hit.signals.values())
    changes = [("plus" if change > 0 else "minus", name, change) for name, change in hit.signals.items()]
    return [("base", "before signals", base), *changes]


def _rerank(hit: Passage) -> tuple[Bar, ...]:
    score = hit.rerank_score
    if score is None:
        return ()
    return (Bar(x=0, width=round(100 * min(1.0, max(0.0, score)), 2), kind="rerank", tooltip=f"{score:.3f}"),)


def _value_range(parts_by_hit: Iterable[Sequence[tuple[str, str, float]]]) -> tuple[float, float]:
    """Return the smallest negative sum and the largest positive sum.

    A sum is of the parts of one hit with that sign.
    """
    low, high = 0.0, 0.0
    for parts in parts_by_hit:
        low = min(low, sum(value for _, _, value in parts if value < 0))
        high = max(high, sum(value for _, _, value in parts if value > 0))
    return (low, high) if high > low else (0.0, 1.0)


def _stack_bars(parts: Sequence[tuple[str, str, float]], low: float, high: float) -> Iterator[Bar]:
    """Yield the segments of a bar.

    Positive parts are to the right of 0, negative ones to the left.
    """
    scale = 100 / (high - low)
    right = left = -low * scale
    for kind, name, value in parts:
        width = abs(value) * scale
        if value < 0:
            left -= width
        yield Bar(
            x=round(right if value >= 0 else left, 2), width=round(width, 2), kind=kind, tooltip=f"{name} {value:+.4f}"
        )
        if value >= 0:
            right += width


def _stages(timings_ms: Mapping[str, float]) -> Iterator[StageDuration]:
    durations = {name: took_ms for name, took_ms in timings_ms.items() if name != "total"}
    remainder = timings_ms["total"] - sum(durations.values())
    if remainder > 0:
        durations[_REMAINDER] = remainder
    total = sum(durations.values()) or 1.0
    x = 0.0
    for row, (name, took_ms) in enumerate(durations.items()):
        width = 100 * took_ms / total
        bar = Bar(x=round(x, 2), width=round(width, 2), kind="stage", tooltip=f"{name} {took_ms:.1f} ms")
        # Shades alternate, and have no meaning.
        labelled = width >= _MIN_LABEL_WIDTH and name != _REMAINDER
        yield StageDuration(name=name, milliseconds=took_ms, bar=bar, shade=(1, 0.45)[row % 2], labelled=labelled)
        x += width
