"""Measure which facts of tables our parser and others preserve in text.

    python -m benchmarks.parsing [--held-out] [--json FILE] [--bounds FILE] [--quick]

A fact is the first value of a row, the names of a column and a value, as the file shows them. A text has a fact if a
line has `name: value; name: value`, or if a row of a Markdown table has the value below the name. A table of two
columns may also be read as pairs, `| name | value |`; the reading that is better for the parser counts. Other parsers
run in the environment that `make bench-parsing` makes for them. A missing one is skipped with a message. The
command fails if a figure is outside its bounds.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.bounds import command_with_bounds, exit_outside
from benchmarks.command import ROOT, parse, temporary_folder, write_results
from benchmarks.table_data import Case, Fact, cases
from benchmarks.table_files import WRITERS
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing import parse as parse_document

_PEERS_PYTHON = ROOT / ".venv-parsers" / "bin" / "python"
_COPIES = 5
_TIMEOUT_S = 600
_NO_NAME = re.compile(r"Unnamed: \d+|NaN")
"""What pandas writes for an empty cell, and so do parsers that use it."""
_CELL_END = re.compile(r"(?<!\\)\|")


def main() -> None:
    """Run the benchmark."""
    parser = command_with_bounds(__doc__, "parsing.json")
    parser.add_argument("--held-out", action="store_true", help="the held-out part; look at it at the end only")
    arguments = parse(parser)
    documents = cases(held_out=arguments.held_out, copies=1 if arguments.quick else _COPIES)
    files = {(case.name, format_): WRITERS[format_](case) for case in documents for format_ in sorted(case.formats)}
    texts = {"kosmos_rag": {key: _read(data, key[1]) for key, data in files.items()}}
    if not arguments.quick:
        texts |= _read_by_peers(files)
    scores = {
        name: {key: _score(text, _case(documents, key[0])) for key, text in of.items()} for name, of in texts.items()
    }
    print(
        f"{len(documents)} documents, {sum(len(case.tables) for case in documents)} tables, "
        f"{len(files)} files: F1 of facts"
    )
    print(f"{'':12}" + "".join(f"{name:>14}" for name in scores))
    summary = {format_: {name: _mean(of, format_) for name, of in scores.items()} for format_ in WRITERS}
    for format_, row in summary.items():
        print(f"{format_:12}" + "".join(f"{value:14.3f}" for value in row.values()))
    for (name, format_), value in scores["kosmos_rag"].items():
        if value < 1:
            print(f"  {name}, {format_}: {value:.3f}")
    write_results(arguments.json, summary)
    figures = {format_: row["kosmos_rag"] for format_, row in summary.items()}
    exit_outside(arguments.bounds, "parsing", {"held out" if arguments.held_out else "development": figures})


def score_files(*, held_out: bool, copies: int) -> Iterator[tuple[str, float]]:
    """Yield the name and the F1 of our parser of each generated file."""
    for case in cases(held_out=held_out, copies=copies):
        for format_ in sorted(case.formats):
            yield f"{case.name}, {format_}", _score(_read(WRITERS[format_](case), format_), case)


def _read(data: bytes, format_: str) -> str:
    return parse_document(SourceDocument(source=f"a.{format_}", data=data)).text


def _read_by_peers(files: Mapping[tuple[str, str], bytes]) -> dict[str, dict[tuple[str, str], str]]:
    """Return the texts of the other parsers by their names."""
    if not _PEERS_PYTHON.is_file():
        print(f"markitdown is left out: it is not in {_PEERS_PYTHON.parents[1].name}; run `make bench-parsing`")
        return {}
    folder = temporary_folder()
    names = {key: f"{number}.{key[1]}" for number, key in enumerate(files)}
    for key, data in files.items():
        (folder / names[key]).write_bytes(data)
    script = Path(__file__).parent / "peers" / "markitdown_texts.py"
    process = subprocess.run(
        [_PEERS_PYTHON, script, folder], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if process.returncode:
        print(f"markitdown is left out: {process.stderr.strip().splitlines()[-1]}")
        return {}
    return {"markitdown": {key: (folder / f"{name}.txt").read_text(encoding="utf-8") for key, name in names.items()}}


def _case(documents: Sequence[Case], name: str) -> Case:
    return next(case for case in documents if case.name == name)


def _mean(scores: Mapping[tuple[str, str], float], format_: str) -> float:
    values = [value for (_, of), value in scores.items() if of == format_]
    return sum(values) / len(values)


def _score(text: str, case: Case) -> float:
    expected = Counter(map(_normalise, case.facts))
    return max(f1(Counter(map(_normalise, facts)), expected) for facts in readings(text))


def f1(actual: Counter[Fact], expected: Counter[Fact]) -> float:
    """Return the harmonic mean of precision and recall."""
    return 2 * (actual & expected).total() / max(1, actual.total() + expected.total())


def _normalise(fact: Fact) -> Fact:
    key, name, value = (" ".join(text.split()) for text in fact)
    return key, " ".join(re.findall(r"\w+", name.casefold())), value


def readings(text: str) -> Iterator[list[Fact]]:
    """Yield the facts of a text, with tables of two columns as tables, then as pairs."""
    lines = [fact for line in text.split("\n") for fact in _facts_of_line(line)]
    tables = list(_markdown_tables(text))
    yield lines + [
        fact for header, *rows in filter(None, tables) for row in rows for fact in _facts_of_row(header, row)
    ]
    yield lines + [(row[1], row[0], row[1]) for table in tables for row in table if len(row) == 2 and row[1]]


def _facts_of_line(line: str) -> list[Fact]:
    """Read `name: value; name: value`; the first value may have no name."""
    first, *others = [part.partition(": ") for part in line.split("; ")]
    if line.startswith("|") or not all(colon for _, colon, _ in others) or not (first[1] or others):
        return []
    pairs = [(first[0], first[2]) if first[1] else ("", first[0]), *((name, value) for name, _, value in others)]
    return [(pairs[0][1], name, value) for name, value in pairs]


def _facts_of_row(header: Sequence[str], row: Sequence[str]) -> list[Fact]:
    names = [*header, *[""] * len(row)]
    return [(row[0], name, value) for name, value in zip(names, row, strict=False) if value]


def _markdown_tables(text: str) -> Iterator[list[list[str]]]:
    rows: list[list[str]] = []
    for line in [*text.split("\n"), ""]:
        if line.startswith("|"):
            cells = _CELL_END.split(line.strip().strip("|"))
            rows.append([_NO_NAME.sub("", cell).strip() for cell in cells])
        elif rows:
            del rows[1:2]  # the line of delimiters
            yield rows if any(rows[0]) else rows[1:]  # some write a blank header above all tables
            rows = []


if __name__ == "__main__":
    main()
