"""The table of a run: rows with goals, and the costs of storing and writing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table

from benchmarks.scale.measure import BOTH, DENSE, LEXICAL, OURS, Row

PUBLISHING_RATIO = 1.2
MAINTENANCE_RATIO = 1.3
EQUAL = 1e-4
"""Relative difference of two scores that single precision explains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What a row must reach. Times are milliseconds."""

    p50: float
    """Of the stage of a single retriever, because alternatives fetch no passages; otherwise of the whole call."""
    p99: float | None = None
    recall_10: float | None = None
    recall_100: float | None = None
    difference: float | None = None

    def includes(self, row: Row) -> bool:
        """Whether the row reaches all of it."""
        took = row.p50 if row.in_retriever is None else row.in_retriever
        highest = ((took, self.p50), (row.p99, self.p99), (row.difference, self.difference))
        lowest = ((row.recall_10, self.recall_10), (row.recall_100, self.recall_100))
        return all(limit is None or (value is not None and value <= limit) for value, limit in highest) and all(
            limit is None or (value is not None and value >= limit) for value, limit in lowest
        )

    def __str__(self) -> str:
        parts = [f"p50 ≤ {self.p50:g}"]
        parts += [f"p99 ≤ {self.p99:g}"] if self.p99 is not None else []
        parts += [f"R ≥ {_share(self.recall_10)}/{_share(self.recall_100)}"] if self.recall_10 is not None else []
        parts += ["exact"] if self.difference is not None else []
        return ", ".join(parts)


def goal(row: Row) -> Goal | None:
    """Return the goal of a row: that of the smallest size that the tenant does not exceed; None where none is set."""
    if row.way != OURS:
        return None
    if row.retriever == LEXICAL:
        p50 = _limit(row.share.chunks, {50_000: 4, 500_000: 12, 1_000_000: 25})
        return Goal(p50=p50, difference=EQUAL) if p50 else None
    if row.retriever == DENSE:
        p50 = _limit(row.share.chunks, {100_000: 10, 500_000: 8 if "hnsw" in row.plan else 40})
        return Goal(p50=p50, recall_10=0.99, recall_100=0.97) if p50 else None
    return Goal(p50=40, p99=150) if row.share.chunks <= 1_000_000 else None


def _limit(chunks: int, limits: Mapping[int, float]) -> float | None:
    return next((limit for size, limit in sorted(limits.items()) if chunks <= size), None)


def to_dict(row: Row) -> dict[str, Any]:
    """Return a row with its goal, and whether it is met."""
    row_goal = goal(row)
    return {
        **asdict(row),
        "goal": str(row_goal) if row_goal else None,
        "met": row_goal.includes(row) if row_goal else None,
    }


def show(result: Mapping[str, Any], rows: Sequence[Row], console: Console) -> None:
    """Print a run: the table of the ways first, then throughput, writing and storage."""
    order = {LEXICAL: 0, DENSE: 1, BOTH: 2}
    ranking = sorted(rows, key=lambda row: (order[row.retriever], row.share.chunks, row.way != OURS))
    console.print(
        Group(
            _ways(ranking, f"{result['chunks']:,} chunks, {result['data']}, {result['questions']} questions a row"),
            _throughput(result["throughput"]),
            _show_writing(result),
            _storage(result["storage"]),
        )
    )
    for note in result["notes"]:
        console.print(note)


def _ways(rows: Sequence[Row], title: str) -> RenderableType:
    table = _table(
        title,
        "retriever",
        "way",
        "tenant",
        "plan",
        ">chunks",
        ">p50 ms",
        ">p95",
        ">p99",
        ">in retriever",
        ">R@10",
        ">R@100",
        "goal",
        "met",
    )
    for row in rows:
        row_goal = goal(row)
        recall = [_share(row.recall_10), _share(row.recall_100)]
        if row.difference is not None:
            recall = ["= bm25s", ""] if row.difference <= EQUAL else [f"off {row.difference:.1g}", ""]
        table.add_row(
            row.retriever,
            row.way,
            f"{row.share.percent:g} %",
            "; ".join(part for part in (row.plan, row.note) if part),
            f"{row.share.chunks:,}",
            *(f"{value:.1f}" for value in (row.p50, row.p95, row.p99)),
            "" if row.in_retriever is None else f"{row.in_retriever:.1f}",
            *recall,
            str(row_goal or ""),
            _show_verdict(row_goal.includes(row)) if row_goal else "",
        )
    return table


def _throughput(measured: Sequence[Mapping[str, Any]]) -> RenderableType:
    table = _table(
        "clients at once: the tenant of 50 %, both retrievers, 8 connections",
        ">clients", ">queries/s", ">p50 ms", ">p95", ">p99", ">fairness", "errors",
    )  # fmt: skip
    for entry in measured:
        numbers = (entry[name] for name in ("clients", "queries_per_s", "p50", "p95", "p99", "fairness"))
        errors = ", ".join(f"{count} {name}" for name, count in entry["errors"].items())
        table.add_row(*(f"{number:g}" for number in numbers), errors or "none")
    return table


def _show_writing(result: Mapping[str, Any]) -> RenderableType:
    table = _table("writing, and asking meanwhile", "what", ">figure", "goal", "met")
    load, publishing, visibility, maintenance = (
        result[name] for name in ("load", "publishing", "found", "maintenance")
    )
    table.add_row("chunks published a second, 2 writers", f"{load['chunks_per_s']:,}", "", "")
    for index in result["indexes"]:
        table.add_row(f"indexes of tenant {index['tenant']} built, s", f"{index['seconds']:.1f}", "", "")
    label = f"{publishing['chunks']:,} chunks into the largest tenant, by an empty one"
    table.add_row(label, *_ratio(publishing["ratio"], PUBLISHING_RATIO))
    for retriever, at_once in visibility.items():
        table.add_row(
            f"a new chunk is found by the {retriever} retriever",
            _show_verdict(at_once),
            "at once",
            _show_verdict(at_once),
        )
    for work in ("index_build", "index_rebuild"):
        during = maintenance[work]
        label = f"p50 during {work}, by quiet p50 ({during['queries']} queries in {during['seconds']:g} s)"
        table.add_row(label, *_ratio(during["ratio"], MAINTENANCE_RATIO))
    return table


def _storage(weights: Mapping[str, Mapping[str, float]]) -> RenderableType:
    table = _table("bytes a chunk", "table or column", ">rows", ">indexes", ">together")
    for name, weight in weights.items():
        indexes = weight.get("indexes")
        together = weight["rows"] + (indexes or 0)
        table.add_row(
            name,
            f"{weight['rows']:,.0f}",
            "" if indexes is None else f"{indexes:,.0f}",
            "" if indexes is None else f"{together:,.0f}",
        )
    return table


def _table(title: str, *columns: str) -> Table:
    """Make a table; a column whose name begins with `>` is aligned right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left")
    return table


def _ratio(ratio: float | None, limit: float) -> tuple[str, str, str]:
    if ratio is None:
        return "too quick to ask", f"≤ {limit:g}", ""
    return f"{ratio:.2f}", f"≤ {limit:g}", _show_verdict(ratio <= limit)


def _show_verdict(reached: bool) -> str:
    return "yes" if reached else "no"


def _share(value: float | None) -> str:
    """Write a share with three digits, without the nought before the point."""
    return "" if value is None else f"{value:.3f}".removeprefix("0")
