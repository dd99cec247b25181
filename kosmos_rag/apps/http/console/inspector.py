"""A retrieval drawn for reading: the legs beside the fused order, what each hit's score is made of, where time went.

Geometry is worked out here and drawn by the templates: bars by shares of a width of 100, lines by pixels of height.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kosmos_rag.apps.http.console.links import place_of
from kosmos_rag.core.types import Passage, RetrieverStats, SearchResult

LEG_ROW = 34
"""Pixels of height of a row of the legs, the style sheet's too."""
HIT_ROW = 64
"""Pixels of height of a row of the final order, the style sheet's too."""
_EXCERPT = 240
_REST = "rest"
_NAMED = 7
"""Part of the time, in percent, that a stage's name takes on the bar."""
_DENSE, _LEXICAL, _OTHER = "dense", "lexical", "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A part of a bar."""

    x: float
    width: float
    kind: str
    """How it is drawn: `dense`, `lexical`, `other`, `base`, `plus`, `minus`, `rerank`."""
    told: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A hit in one of the lists: its rank there, its score, where it stands among the rows."""

    number: int
    """The hit's final rank, by which it is told from the others."""
    rank: int
    score: float
    hit: Passage
    gap: bool
    """Whether other candidates stand between it and the row before, which are not among the hits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A line from a row to another."""

    number: int
    path: str
    strength: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Leg:
    """A leg's list, and the lines from it to the fused order."""

    name: str
    explain: RetrieverStats | None
    entries: tuple[Entry, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A row of the final order."""

    hit: Passage
    href: str
    moved: int
    """How many places it rose since fusion; below 0, fell."""
    score_contributions: tuple[Bar, ...]
    rerank: tuple[Bar, ...]
    signals: tuple[Bar, ...]
    excerpt: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A stage, and its part of the time."""

    name: str
    milliseconds: float
    bar: Bar
    shade: float
    named: bool
    """Whether there is room for its name on the bar."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """A retrieval as a page shows it."""

    found: SearchResult
    dense: Leg
    lexical: Leg
    fused: tuple[Entry, ...]
    slopes: tuple[Link, ...]
    """Lines from the fused order to the final one."""
    hits: tuple[Hit, ...]
    stages: tuple[Stage, ...]
    others: Mapping[str, RetrieverStats]
    """Lists of candidates beside the two legs: of other wordings, and of feedback."""
    zero: float
    """Where no share of the score stands on the bars of signals."""

    @property
    def reranked(self) -> bool:
        """Whether a reranker scored any hit."""
        return any(hit.rerank_score is not None for hit in self.found.hits)

    @property
    def moved_by_signals(self) -> bool:
        """Whether signals changed any score."""
        return any(hit.signals for hit in self.found.hits)

    @property
    def legs_height(self) -> int:
        """Pixels of height of the legs."""
        return LEG_ROW * max(1, len(self.fused))

    @property
    def hits_height(self) -> int:
        """Pixels of height of the final order."""
        return HIT_ROW * max(1, len(self.hits))


def inspection(found: SearchResult) -> Inspection:
    """Return a retrieval for a page."""
    hits = found.hits
    fused = _list(hits, lambda hit: hit.fused_rank, lambda hit: hit.fused_score)
    place = {entry.number: row for row, entry in enumerate(fused)}
    low, high = _reach([_signal_parts(hit) for hit in hits])
    widest = max((sum(hit.score_contributions.values()) for hit in hits), default=0.0) or 1.0
    return Inspection(
        found=found,
        dense=_leg(_DENSE, found, place, lambda hit: hit.dense_rank, lambda hit: hit.dense_score, mirrored=False),
        lexical=_leg(
            _LEXICAL, found, place, lambda hit: hit.lexical_rank, lambda hit: hit.lexical_score, mirrored=True
        ),
        fused=tuple(fused),
        slopes=tuple(_slopes(hits, place)),
        hits=tuple(
            Hit(
                hit=hit,
                href=place_of(hit),
                moved=place[hit.rank] - row,
                score_contributions=tuple(_stacked(_share_parts(hit), 0.0, widest)),
                rerank=_rerank(hit),
                signals=tuple(_stacked(_signal_parts(hit), low, high)) if hit.signals else (),
                excerpt=_excerpt(hit.text),
            )
            for row, hit in enumerate(hits)
        ),
        stages=tuple(_stages(found.timings_ms)),
        others={name: leg for name, leg in found.retrievers.items() if name not in {_DENSE, _LEXICAL}},
        zero=-low / (high - low) * 100,
    )


def _excerpt(text: str) -> str:
    # Its headings are told beside it.
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return " ".join(" ".join(lines or [text]).split())[:_EXCERPT]


def _list(
    hits: Sequence[Passage], rank: Callable[[Passage], int | None], score: Callable[[Passage], float | None]
) -> list[Entry]:
    ranked = sorted((at, hit.rank, hit) for hit in hits if (at := rank(hit)) is not None)
    entries: list[Entry] = []
    for at, number, hit in ranked:
        before = entries[-1].rank if entries else 0
        entries.append(Entry(number=number, rank=at, score=score(hit) or 0.0, hit=hit, gap=at > before + 1))
    return entries


def _leg(
    name: str,
    found: SearchResult,
    place: Mapping[int, int],
    rank: Callable[[Passage], int | None],
    score: Callable[[Passage], float | None],
    *,
    mirrored: bool,
) -> Leg:
    entries = _list(found.hits, rank, score)
    links = []
    for row, entry in enumerate(entries):
        ends = (_middle(row, LEG_ROW), _middle(place[entry.number], LEG_ROW))
        left, right = reversed(ends) if mirrored else ends
        links.append(Link(number=entry.number, path=_curve(left, right), strength=_strength(entry.rank)))
    return Leg(name=name, explain=found.retrievers.get(name), entries=tuple(entries), links=tuple(links))


def _slopes(hits: Sequence[Passage], place: Mapping[int, int]) -> Iterator[Link]:
    for row, hit in enumerate(hits):
        path = _curve(_middle(place[hit.rank], HIT_ROW), _middle(row, HIT_ROW))
        yield Link(number=hit.rank, path=path, strength=_strength(hit.rank))


def _middle(row: int, height: int) -> float:
    return (row + 0.5) * height


def _curve(left: float, right: float) -> str:
    return f"M0 {left:g}C45 {left:g} 55 {right:g} 100 {right:g}"


def _strength(rank: int) -> float:
    """Return how strongly a line is drawn: the first ranks are what a fused order is made of."""
    return round(0.3 + 0.7 / math.sqrt(rank), 2)


def _share_parts(hit: Passage) -> list[tuple[str, str, float]]:
    kinds = {_DENSE: _DENSE, _LEXICAL: _LEXICAL}
    return [(kinds.get(name.partition(" ")[0], _OTHER), name, share) for name, share in hit.score_contributions.items()]


def _signal_parts(hit: Passage) -> list[tuple[str, str, float]]:
    if not hit.signals:
        return []
    before = hit.score - sum(hit.signals.values())
    changes = [("plus" if change > 0 else "minus", name, change) for name, change in hit.signals.items()]
    return [("base", "before signals", before), *changes]


def _rerank(hit: Passage) -> tuple[Bar, ...]:
    score = hit.rerank_score
    if score is None:
        return ()
    return (Bar(x=0, width=round(100 * min(1.0, max(0.0, score)), 2), kind="rerank", told=f"{score:.3f}"),)


def _reach(of_hits: Iterable[Sequence[tuple[str, str, float]]]) -> tuple[float, float]:
    """Return the least and the greatest sum that any stack comes to, with 0 between them."""
    low, high = 0.0, 0.0
    for parts in of_hits:
        low = min(low, sum(value for _, _, value in parts if value < 0))
        high = max(high, sum(value for _, _, value in parts if value > 0))
    return (low, high) if high > low else (0.0, 1.0)


def _stacked(parts: Sequence[tuple[str, str, float]], low: float, high: float) -> Iterator[Bar]:
    """Yield the parts of a bar: what adds goes to the right of 0, what takes away to the left."""
    scale = 100 / (high - low)
    right = left = -low * scale
    for kind, name, value in parts:
        width = abs(value) * scale
        if value < 0:
            left -= width
        yield Bar(
            x=round(right if value >= 0 else left, 2), width=round(width, 2), kind=kind, told=f"{name} {value:+.4f}"
        )
        if value >= 0:
            right += width


def _stages(timings_ms: Mapping[str, float]) -> Iterator[Stage]:
    laps = {name: took for name, took in timings_ms.items() if name != "total"}
    rest = timings_ms["total"] - sum(laps.values())
    if rest > 0:
        laps[_REST] = rest
    whole = sum(laps.values()) or 1.0
    x = 0.0
    for row, (name, took) in enumerate(laps.items()):
        width = 100 * took / whole
        bar = Bar(x=round(x, 2), width=round(width, 2), kind="stage", told=f"{name} {took:.1f} ms")
        # Neighbours differ, and the shades have no meaning.
        named = width >= _NAMED and name != _REST
        yield Stage(name=name, milliseconds=took, bar=bar, shade=(1, 0.45)[row % 2], named=named)
        x += width
