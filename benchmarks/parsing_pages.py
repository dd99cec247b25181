"""Compare what our parser and others read of real PDF pages with descriptions written by hand.

    python -m benchmarks.parsing_pages [--part PART] [--faults] [--only TEXT] [--quick] [--json FILE] [--bounds FILE]

Other parsers run in the environment that `make bench-parsing` makes for them. A missing one is left out with a message.
A page is right if its order, breaks, headings and cells agree to nine tenths, and it has neither an invented table nor
a value under the name of another column. The command fails if a figure is outside its bounds.
"""

import json
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.bounds import command_with_bounds, exit_outside
from benchmarks.command import ROOT, parse, write_results
from benchmarks.page_descriptions import PARTS, DescribedPage, read_descriptions
from benchmarks.page_files import FILES, find_file
from benchmarks.page_scores import PageScore, ReadPage, score_page
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse as parse_document

_PEERS_PYTHON = ROOT / ".venv-parsers" / "bin" / "python"
_PEERS = ("markitdown", "pdfplumber", "pymupdf4llm")
_TIMEOUT_S = 1_800

_Pages = Mapping[str, Sequence[ReadPage]]


def main() -> None:
    """Run the benchmark."""
    parser = command_with_bounds(__doc__, "parsing_pages.json")
    parser.add_argument("--part", choices=PARTS, default="first", help="look at held-out at the end only")
    parser.add_argument("--faults", action="store_true", help="print each fault of our parser")
    parser.add_argument("--only", default="", metavar="TEXT", help="files with this text in their names")
    arguments = parse(parser)
    if not FILES.is_dir():
        print(f"real pages are left out: {FILES.relative_to(ROOT.parent)}, no part of the repository, is absent")
        return
    described = [page for page in read_descriptions(arguments.part) if arguments.only in page.file]
    files = sorted({page.file for page in described})
    if absent := [file for file in files if not find_file(file).is_file()]:
        raise SystemExit(f"{len(absent)} files are absent; fetch them: python -m benchmarks.page_files")
    readings = {"kosmos_rag": _read(files)}
    if not arguments.quick and not arguments.only:
        readings |= _read_by_peers(files)
    scores = {name: _score(described, pages) for name, (pages, _) in readings.items()}
    print(f"{len(described)} pages of {len(files)} files, {arguments.part} part")
    summaries = {name: _summarise(of, readings[name][1]) for name, of in scores.items()}
    for figure in next(iter(summaries.values())):
        print(f"{figure:26}" + "".join(f"{of[figure]:14.3f}" for of in summaries.values()))
    for page, score in zip(described, scores["kosmos_rag"], strict=True):
        _print_page(page, score, with_faults=arguments.faults)
    write_results(arguments.json, summaries)
    if not arguments.only:
        exit_outside(arguments.bounds, "parsing_pages", {f"{arguments.part} part": summaries["kosmos_rag"]})


def score_pages(described: Sequence[DescribedPage]) -> list[PageScore]:
    """Return how our parser reads each described page."""
    return _score(described, _read(sorted({page.file for page in described}))[0])


def _read(files: Iterable[str]) -> tuple[_Pages, float]:
    begin = time.process_time()
    pages = {file: _read_pages(file) for file in files}
    return pages, time.process_time() - begin


def _read_pages(file: str) -> Sequence[ReadPage]:
    try:
        parsed = parse_document(SourceDocument(source=file, data=find_file(file).read_bytes()))
    except ParseError as exc:
        print(f"{file}: {exc}")
        return ()
    ends = [*parsed.pages[1:], len(parsed.text)]
    return [_read_page(parsed, start, end) for start, end in zip(parsed.pages, ends, strict=True)]


def _read_page(parsed: ParsedDocument, start: int, end: int) -> ReadPage:
    return ReadPage(
        text=parsed.text[start:end],
        headings=[heading.title for heading in parsed.headings if start <= heading.start < end],
        tables=[parsed.text[table.start : table.end] for table in parsed.tables if start <= table.start < end],
    )


def _read_by_peers(files: Sequence[str]) -> dict[str, tuple[_Pages, float]]:
    """Return the pages that other parsers read, and their processor time."""
    if not _PEERS_PYTHON.is_file():
        print(f"the others are left out: they are not in {_PEERS_PYTHON.parents[1].name}; run `make bench-parsing`")
        return {}
    readings: dict[str, tuple[_Pages, float]] = {}
    script = ROOT / "benchmarks" / "peers" / "pdf_pages.py"
    for name in _PEERS:
        process = subprocess.run(
            [_PEERS_PYTHON, script, name, *map(find_file, files)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if process.returncode:
            print(f"{name} is left out: {process.stderr.strip().splitlines()[-1]}")
            continue
        output = json.loads(process.stdout)
        pages = {file: [_read_markdown(text) for text in texts] for file, texts in output["pages"].items()}
        readings[name] = pages, output["seconds"]
    return readings


def _read_markdown(text: str) -> ReadPage:
    lines = text.split("\n")
    tables: list[list[str]] = []
    for before, line in zip(["", *lines], lines, strict=False):
        if line.lstrip().startswith("|"):
            if not before.lstrip().startswith("|"):
                tables.append([])
            tables[-1].append(line)
    headings = [line.lstrip("# ").replace("*", "") for line in lines if line.startswith("#")]
    return ReadPage(text=text, headings=headings, tables=["\n".join(table) for table in tables])


def _score(described: Iterable[DescribedPage], pages: _Pages) -> list[PageScore]:
    nothing = ReadPage(text="")
    scores = []
    for page in described:
        of_file = pages.get(page.file, ())
        scores.append(score_page(page, of_file[page.number - 1] if page.number <= len(of_file) else nothing))
    return scores


def _summarise(scores: Sequence[PageScore], seconds: float) -> dict[str, float]:
    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(scores)

    total_cells = sum(score.cells + score.found_cells for score in scores)
    total_headings = sum(score.headings + score.found_headings for score in scores)
    anchors = sum(score.anchors for score in scores)
    return {
        "right": mean(score.is_right for score in scores),
        "right but for headings": mean(score.is_read_right for score in scores),
        "order": sum(score.in_order for score in scores) / anchors,
        "false breaks": sum(score.false_breaks for score in scores) / anchors,
        "missing breaks": sum(score.missing_breaks for score in scores) / anchors,
        "F1 of headings": 2 * sum(score.true_headings for score in scores) / max(1, total_headings),
        "F1 of cells": 2 * sum(score.true_cells for score in scores) / max(1, total_cells),
        "false names": sum(score.false_names for score in scores),
        "pages with invented tables": mean(score.invented_tables > 0 for score in scores),
        "seconds of computing": seconds,
    }


def _print_page(page: DescribedPage, score: PageScore, *, with_faults: bool) -> None:
    if score.is_right and not (with_faults and score.faults):
        return
    print(
        f"  {page.file}, page {page.number}: order {score.order:.2f}, breaks {score.breaks:.2f}, "
        f"headings {score.heading_f1:.2f}, cells {score.cell_f1:.2f}, invented {score.invented_tables}"
    )
    if with_faults:
        for fault in score.faults:
            print(f"      {fault}")


if __name__ == "__main__":
    main()
