"""Explain a search result or an answer as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kosmos_rag.core.text.counts import count

if TYPE_CHECKING:
    from kosmos_rag.core.types import Answer, Passage, RetrieverStats, SearchResult

_HEADER = ("rank", "dense", "lexical", "fused", "shares", "reranked", "passage")
_NONE = "-"
_UNIT_CHARS = 100
"""Characters of a unit that an explanation of an answer shows."""


def explanation(result: "SearchResult") -> str:
    """Return a table of hits and stages as text.

    Without control characters.
    """
    questions = list(activity_lines(result)) or [f"question  {result.question}"]
    lines = [*questions, *operator_lines(result), *_conditions(result), *_expansion(result)]
    if result.intent is not None:
        lines.append(f"intent    {result.intent}")
    width = max([9, *map(len, result.retrievers)])
    lines += [f"{name:<{width}} {_stats(stats)}" for name, stats in result.retrievers.items()]
    lines += ["", *_table([_HEADER, *(_row(hit) for hit in result.hits)]), *_signals(result.hits), ""]
    lines += [f"note      {warning}" for warning in result.warnings]
    if result.incomplete_reason:
        lines.append(f"short     {result.returned} of {result.requested} passages: {result.incomplete_reason}")
    cached = "from the cache; " if result.cached else ""
    lines.append(f"ms        {cached}{_timings(result.timings_ms)}")
    return "".join(f"{_strip_control(line).rstrip()}\n" for line in lines)


def explain_answer(answer: "Answer") -> str:
    """Return a table of scored units and the reason for a refusal as text.

    Without control characters.
    """
    lines = [f"question   {answer.search_query}", f"confidence {answer.confidence:.2f}"]
    if answer.refusal_reason is not None:
        lines.append(f"refused    {answer.refusal_reason}")
    if answer.units:
        names = tuple(answer.units[0].parts)
        rows = [
            (f"{unit.score:.3f}", *(f"{unit.parts[name]:+.3f}" for name in names), unit.marker, _shorten(unit.text))
            for unit in answer.units
        ]
        lines += ["", *_table([("score", *names, "", "unit"), *rows])]
    return "".join(f"{_strip_control(line).rstrip()}\n" for line in lines)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _UNIT_CHARS else f"{line[:_UNIT_CHARS]}…"


def operator_lines(result: "SearchResult") -> Iterator[str]:
    """Yield a line for each kind of operator that the question has."""
    operators = result.operators
    for name, terms in (
        ("phrases", operators.phrases),
        ("required", operators.required),
        ("excluded", operators.excluded),
    ):
        if terms:
            yield f"{name:<9} {', '.join(terms)}"
    if operators.signed_text:
        yield f"text      {', '.join(operators.signed_text)} (syntax=operators makes their signs operators)"


def activity_lines(result: "SearchResult") -> Iterator[str]:
    """Yield a line for each of several questions, with what it gave."""
    for activity in result.activity:
        ranks = ", ".join(map(str, activity.ranks)) or "none"
        yield f"question  {_strip_control(activity.question)} ({count(activity.returned, 'hit')}; ranks {ranks})"


def _conditions(result: "SearchResult") -> Iterator[str]:
    for item in result.conditions:
        matching = count(item.matching, "found passage") if item.matching else "no found passage: no effect"
        yield f"condition {item.field} {item.value} by {item.text!r} (satisfied by {matching})"


def _expansion(result: "SearchResult") -> Iterator[str]:
    if result.expansion.synonyms:
        yield f"synonyms  {', '.join(result.expansion.synonyms)}"
    for number, wording in enumerate(result.expansion.wordings, start=2):
        yield f"wording {number} {wording}"
    if result.expansion.passage:
        yield f"like      {result.expansion.passage}"


def _stats(stats: "RetrieverStats") -> str:
    read = ", ".join(f"{unit.replace('_', ' ')} {count:,}" for unit, count in stats.read.items())
    reason = f"; {stats.reason}" if stats.reason else ""
    weight = "" if stats.weight is None else f"; weight {stats.weight:.2f}"
    if stats.weight is not None and stats.coverage is not None:
        weight += f" for a coverage of {stats.coverage:.2f} of {stats.terms} terms"
        weight += ": words decide" if stats.by_words else ""
    if (items := stats.known_items) is not None and stats.coverage is not None:
        weight += f", {items.questions} known items found {items.dense:.2f} by vectors and {items.lexical:.2f} by words"
    summary = f"{stats.returned} of {stats.requested} candidates by {stats.plan}"
    return f"{summary}{f' ({read})' if read else ''}{reason}{weight}"


def _row(hit: "Passage") -> tuple[str, ...]:
    return (
        str(hit.rank),
        _rank_and_score(hit.dense_rank, hit.dense_score, 3),
        _rank_and_score(hit.lexical_rank, hit.lexical_score, 2),
        _rank_and_score(hit.fused_rank, hit.fused_score, 4),
        " + ".join(f"{contribution:.4f} {name}" for name, contribution in hit.score_contributions.items()),
        _NONE if hit.rerank_score is None else f"{hit.rerank_score:.3f}",
        f"{hit.source} | {hit.location}",
    )


def _signals(hits: "Sequence[Passage]") -> Iterator[str]:
    """Render the signals of each hit: score before, changes, score after."""
    if any(hit.signals for hit in hits):
        yield ""
    for hit in hits:
        if hit.signals:
            before = hit.score - sum(hit.signals.values())
            parts = [f"{'-' if change < 0 else '+'} {abs(change):.3f} {name}" for name, change in hit.signals.items()]
            yield f"signals {hit.rank:<3} {' '.join([f'{before:.3f}', *parts])} = {hit.score:.3f}"


def _rank_and_score(rank: int | None, score: float | None, digits: int) -> str:
    return _NONE if rank is None or score is None else f"#{rank} {score:.{digits}f}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


def _timings(timings_ms: Mapping[str, float]) -> str:
    return ", ".join(f"{stage} {took:.1f}" for stage, took in timings_ms.items())


def _strip_control(line: str) -> str:
    # A source or a section may hold anything: an escape sequence would be obeyed by a terminal.
    return "".join(character if character.isprintable() else "�" for character in line)
