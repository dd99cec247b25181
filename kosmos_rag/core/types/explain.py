"""A retrieval written out for reading: how each hit came to its rank, and what each stage did and took."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kosmos_rag.core.types import Passage, RetrieverStats, SearchResult

_HEADER = ("rank", "dense", "lexical", "fused", "shares", "reranked", "passage")
_NONE = "-"


def explanation(of: "SearchResult") -> str:
    """Return a table of the hits and the account of the stages, as lines of text without control characters."""
    lines = [f"question  {of.question}", *_expansion(of)]
    if of.intent is not None:
        lines.append(f"intent    {of.intent}")
    width = max([9, *map(len, of.retrievers)])
    lines += [f"{name:<{width}} {_account(leg)}" for name, leg in of.retrievers.items()]
    lines += ["", *_table([_HEADER, *(_row(hit) for hit in of.hits)]), *_signals(of.hits), ""]
    lines += [f"note      {note}" for note in of.warnings]
    if of.incomplete_reason:
        lines.append(f"short     {of.returned} of {of.requested} asked for: {of.incomplete_reason}")
    kept = "kept from before; " if of.cached else ""
    lines.append(f"ms        {kept}{_timings(of.timings_ms)}")
    return "".join(f"{_printable(line).rstrip()}\n" for line in lines)


def _expansion(of: "SearchResult") -> Iterator[str]:
    if of.expansion.synonyms:
        yield f"synonyms  {', '.join(of.expansion.synonyms)}"
    for number, wording in enumerate(of.expansion.wordings, start=2):
        yield f"wording {number} {wording}"
    if of.expansion.passage:
        yield f"like      {of.expansion.passage}"


def _account(leg: "RetrieverStats") -> str:
    read = ", ".join(f"{what.replace('_', ' ')} {count:,}" for what, count in leg.read.items())
    reason = f"; {leg.reason}" if leg.reason else ""
    return f"{leg.returned} of {leg.requested} candidates by {leg.plan}{f' ({read})' if read else ''}{reason}"


def _row(hit: "Passage") -> tuple[str, ...]:
    return (
        str(hit.rank),
        _ranked(hit.dense_rank, hit.dense_score, 3),
        _ranked(hit.lexical_rank, hit.lexical_score, 2),
        _ranked(hit.fused_rank, hit.fused_score, 4),
        " + ".join(f"{share:.4f} {name}" for name, share in hit.score_contributions.items()),
        _NONE if hit.rerank_score is None else f"{hit.rerank_score:.3f}",
        f"{hit.source} | {hit.location}",
    )


def _signals(hits: "Sequence[Passage]") -> Iterator[str]:
    """Write out, of each hit that signals moved, the score before them, what each added, and what came of it."""
    if any(hit.signals for hit in hits):
        yield ""
    for hit in hits:
        if hit.signals:
            before = hit.score - sum(hit.signals.values())
            parts = [f"{'-' if change < 0 else '+'} {abs(change):.3f} {name}" for name, change in hit.signals.items()]
            yield f"signals {hit.rank:<3} {' '.join([f'{before:.3f}', *parts])} = {hit.score:.3f}"


def _ranked(rank: int | None, score: float | None, digits: int) -> str:
    return _NONE if rank is None or score is None else f"#{rank} {score:.{digits}f}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


def _timings(timings_ms: Mapping[str, float]) -> str:
    return ", ".join(f"{stage} {took:.1f}" for stage, took in timings_ms.items())


def _printable(line: str) -> str:
    # A source or a section may hold anything: an escape sequence would be obeyed by a terminal.
    return "".join(character if character.isprintable() else "�" for character in line)
