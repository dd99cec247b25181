"""Measure breaks of paragraphs and cells of tables in parsed PDF files.

    python -m benchmarks.parsing_pdf [--dev] [--bounds FILE] [--quick]

A quick run has one document of each style. The command fails if a figure is outside its bounds.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from benchmarks import pdf_library_tables, pdf_prose, pdf_tables
from benchmarks.bounds import command_with_bounds, exit_outside
from benchmarks.command import parse as parse_arguments
from benchmarks.pdf_tables import Fact
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing import parse

_IGNORED = re.compile(r"[\s\u00ad\u2010-]+")
_CAPTION = re.compile(r"Table \d+[.:]")
_BREAK = re.compile(r"\n\s*\n")

Reader = Callable[[bytes], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Breaks:
    """How the breaks of a text agree with the paragraphs of a document."""

    breaks: int
    """In the text between the first and the last letter of known paragraphs."""
    false: int
    """Of these, within a paragraph."""
    whole: int
    """Paragraphs that are in the text without anything in between."""
    paragraphs: int
    merged: int
    """Paragraphs that begin without a break."""


def count_breaks(text: str, paragraphs: Sequence[str]) -> Breaks:
    """Compare the breaks of a text with the paragraphs that it should have."""
    squeezed: list[str] = []
    breaks: list[int] = []
    length = 0
    for part in _BREAK.split(text):
        clean = _IGNORED.sub("", part)
        squeezed.append(clean)
        length += len(clean)
        breaks.append(length)
    joined = "".join(squeezed)
    at_break = {0, *breaks}
    false = whole = merged = 0
    end = 0
    for paragraph in paragraphs:
        letters = _IGNORED.sub("", paragraph)
        start = joined.find(letters, end)
        if start == -1:
            false += _breaks_in_pieces(joined, letters, at_break)
            continue
        whole += 1
        end = start + len(letters)
        false += sum(start < at < end for at in at_break)
        merged += start not in at_break
    return Breaks(breaks=len(at_break) - 1, false=false, whole=whole, paragraphs=len(paragraphs), merged=merged)


def _breaks_in_pieces(joined: str, letters: str, at_break: set[int]) -> int:
    """Count the breaks within a paragraph that something cuts in two; at least one, for it is cut."""
    head = joined.find(letters[:20])
    tail = joined.find(letters[-20:], head)
    if head == -1 or tail == -1:
        return 1
    return max(1, sum(head < at < tail + 20 for at in at_break))


def read_text(data: bytes) -> str:
    """Parse a PDF as ingestion does."""
    return parse(SourceDocument(source="a.pdf", data=data)).text


def measure_prose(read: Reader, *, held_out: bool, seeds: int = 3) -> list[tuple[str, Breaks]]:
    """Return how the breaks of each generated document agree; so many documents of each style."""
    return [
        (name, count_breaks(read(data), paragraphs))
        for name, data, paragraphs in pdf_prose.documents(held_out=held_out, seeds=seeds)
    ]


def collect_facts(text: str) -> Counter[Fact]:
    """Return the facts of rendered tables: first value of a row, name of a column, value."""
    facts: Counter[Fact] = Counter()
    for line in text.split("\n"):
        pairs = [pair.partition(": ") for pair in line.split("; ")]
        if all(colon for _, colon, _ in pairs) and not _CAPTION.match(line):
            facts.update((pairs[0][2], name, value) for name, _, value in pairs)
    return facts


def measure_tables(read: Reader, *, held_out: bool, seeds: int = 4, library_seeds: int = 3) -> list[tuple[str, float]]:
    """Return the F1 of the facts of each generated document.

    Args:
        read: parser of a PDF.
        held_out: whether the documents are those that no rule was developed on.
        seeds: documents of each style.
        library_seeds: documents of each kind that a library sets.
    """
    documents = chain(
        pdf_tables.documents(held_out=held_out, seeds=seeds),
        pdf_library_tables.documents(held_out=held_out, seeds=library_seeds),
    )
    return [(name, f1(collect_facts(read(data)), Counter(facts))) for name, data, facts in documents]


def f1(actual: Counter[Fact], expected: Counter[Fact]) -> float:
    """Return the harmonic mean of precision and recall."""
    return 2 * (actual & expected).total() / max(1, actual.total() + expected.total())


def _sum(results: Iterable[Breaks]) -> Breaks:
    parts = list(results)
    return Breaks(
        breaks=sum(each.breaks for each in parts),
        false=sum(each.false for each in parts),
        whole=sum(each.whole for each in parts),
        paragraphs=sum(each.paragraphs for each in parts),
        merged=sum(each.merged for each in parts),
    )


def main() -> None:
    """Print the figures."""
    parser = command_with_bounds(__doc__)
    parser.add_argument("--dev", action="store_true", help="leave the held-out part out")
    arguments = parse_arguments(parser)
    of_prose, of_tables = ({"seeds": 1}, {"seeds": 1, "library_seeds": 1}) if arguments.quick else ({}, {})
    figures = {}
    for part, held_out in (("development", False), ("held out", True))[: 1 if arguments.dev else 2]:
        begin = time.process_time()
        results = measure_prose(read_text, held_out=held_out, **of_prose)
        total = _sum(result for _, result in results)
        for name, each in [*results, (f"prose, {part}", total)]:
            print(
                f"{name:32} breaks {each.breaks:4}  false {each.false / max(1, each.breaks):6.1%}  "
                f"whole {each.whole / each.paragraphs:6.1%}  merged {each.merged / each.paragraphs:6.1%}"
            )
        tables = measure_tables(read_text, held_out=held_out, **of_tables)
        mean = sum(score for _, score in tables) / len(tables)
        for name, score in [*tables, (f"tables, {part}", mean)]:
            print(f"{name:32} F1 {score:.3f}")
        print(f"{time.process_time() - begin:.1f} s of computing, generation included")
        figures[part] = {
            "false breaks": total.false / max(1, total.breaks),
            "whole paragraphs": total.whole / total.paragraphs,
            "F1 of tables": mean,
        }
    exit_outside(arguments.bounds, "parsing_pdf", figures)


if __name__ == "__main__":
    main()
