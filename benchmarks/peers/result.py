"""The figures of a run: the results of each system for a set, judged and summed up."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from benchmarks.peers.exchange import Outcome
from benchmarks.peers.kosmos import BACKENDS, default, embedding, floor
from benchmarks.peers.sets import PreparedSet
from benchmarks.peers.timing import K
from benchmarks.scale.measure import Times, percentiles


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """One way of answering: what it found, and in how many milliseconds."""

    way: str
    plan: str
    quality: dict[str, float] | None
    chunks: float | None
    """How many it found, on average."""
    whole: Times | None
    """With the embedding of the question."""
    search: Times | None
    """Without it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """One system on one set, or why there is nothing to say of it."""

    name: str
    rows: list[Answered]
    versions: dict[str, str]
    chunks_per_s: float | None = None
    """Stored and indexed, with their available vectors."""
    bytes_per_chunk: float | None = None
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The library compared with its floor and its peers, on one backend, by p50 with the embedding of the question."""

    backend: str
    overhead: float
    """Our time by that of embedding the question and the bare statements."""
    times_faster: float | None
    """The fastest peer's time by ours."""
    fastest_peer: str | None


def judge(name: str, data: PreparedSet, outcome: Outcome, size: int | None) -> System:
    """Judge what a system found, and sum up its times."""
    chunks = len(data.corpus.ids)
    rows = [
        Answered(
            way=row.way,
            plan=row.plan,
            quality=data.quality(row.rankings) if row.rankings else None,
            chunks=round(mean(map(len, row.rankings.values())), 1) if row.rankings else None,
            whole=percentiles(row.whole) if row.whole else None,
            search=percentiles(row.search) if row.search else None,
        )
        for row in outcome.rows
    ]
    return System(
        name=name,
        rows=rows,
        versions=outcome.versions,
        chunks_per_s=round(chunks / outcome.seconds) if outcome.seconds else None,
        bytes_per_chunk=round(size / chunks) if size else None,
    )


def summaries(kosmos: System | None, peers: Sequence[System]) -> list[Summary]:
    """Compare our default with its floor, and with the fastest way of any peer that finds as many chunks as asked."""
    if kosmos is None:
        return []
    by_way = {row.way: row for row in kosmos.rows}
    full = [(peer.name, row) for peer in peers for row in peer.rows if row.chunks == K]
    others = [(_p50(row.whole), f"{name}, {row.way}") for name, row in full]
    fastest, name = min(others, default=(None, None))
    rows = []
    for backend in BACKENDS:
        whole = _p50(by_way[default(backend)].whole)
        least = _p50(by_way[embedding(backend)].whole) + _p50(by_way[floor(backend)].search)
        rows.append(
            Summary(
                backend=backend,
                overhead=round(whole / least, 2),
                times_faster=None if fastest is None else round(fastest / whole, 2),
                fastest_peer=name,
            )
        )
    return rows


def _p50(times: Times | None) -> float:
    assert times is not None, "all ways are timed with what they are compared by"
    return times["p50"]
