"""The tables of a run, for the terminal and as Markdown."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.peers.result import Answered, Summary, System
from benchmarks.scale.measure import Times

_COLUMNS = (
    "system",
    "way",
    "nDCG@10",
    "Recall@10",
    "MRR@10",
    "chunks",
    "ms with embedding: p50, p95, p99",
    "ms without: p50, p95, p99",
    "chunks/s stored",
    "bytes a chunk",
    "found by",
)
_TEXTS = {"system", "way", "found by"}
_AS_ABOVE = ("", None, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """All systems on one set."""

    set: str
    documents: int
    chunks: int
    questions: int
    systems: list[System]
    summaries: list[Summary]

    @property
    def title(self) -> str:
        """What was measured."""
        return f"{self.set}: {self.documents:,} documents, {self.chunks:,} chunks, {self.questions} questions"


def show(sets: list[Measured]) -> None:
    """Print the tables and what follows from them."""
    # A pipe has no width of its own, and a table cut to 80 columns cannot be read.
    console = Console(width=None if sys.stdout.isatty() else 220)
    for measured in sets:
        table = Table(title=measured.title, title_justify="left", box=box.SIMPLE)
        for column in _COLUMNS:
            table.add_column(column, justify="left" if column in _TEXTS else "right")
        for cells in _lines(measured):
            table.add_row(*cells)
        console.print(table)
        for sentence in _sentences(measured):
            console.print(sentence)


def markdown(sets: list[Measured], command: str, machine: dict[str, str]) -> str:
    """Write the tables as a page, docs/benchmarks/peers.md, with the command and the machine that they are from."""
    about = "; ".join(f"{name} {value}" for name, value in machine.items())
    parts = ["# Benchmark: other libraries", f"Written by `{command}` on {about}."]
    for measured in sets:
        rows = [_COLUMNS, ["---" if column in _TEXTS else "---:" for column in _COLUMNS], *_lines(measured)]
        parts.append(f"**{measured.title}**")
        parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in rows))
        parts.append("\n".join(f"- {sentence}" for sentence in _sentences(measured)))
    parts.append("\n".join(f"- {line}" for line in _versions(sets)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _lines(measured: Measured) -> Iterator[list[str]]:
    for system in measured.systems:
        if system.failure is not None:
            yield [system.name, f"failed: {system.failure}", *[""] * (len(_COLUMNS) - 2)]
        for number, row in enumerate(system.rows):
            name, per_s, size = (system.name, system.chunks_per_s, system.bytes_per_chunk) if number == 0 else _AS_ABOVE
            times = (_times(row.whole), _times(row.search))
            yield [name, row.way, *_quality(row), *times, _count(per_s), _count(size), row.plan]


def _quality(row: Answered) -> list[str]:
    if row.quality is None:
        return ["", "", "", ""]
    return [*(f"{value:.3f}".removeprefix("0") for value in row.quality.values()), _count(row.chunks)]


def _times(times: Times | None) -> str:
    return "" if times is None else f"{times['p50']:.1f}, {times['p95']:.1f}, {times['p99']:.1f}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _sentences(measured: Measured) -> Iterator[str]:
    for summary in measured.summaries:
        sentence = f"on {summary.backend}: {summary.overhead:.2f} times the model and the bare statements"
        if summary.fastest_peer is not None:
            sentence += f"; {summary.times_faster:.2f} times as fast as the fastest peer ({summary.fastest_peer})"
        yield sentence


def _versions(sets: list[Measured]) -> Iterator[str]:
    for system in {system.name: system for measured in sets for system in measured.systems}.values():
        if system.versions:
            yield f"{system.name}: " + ", ".join(f"{name} {version}" for name, version in system.versions.items())
