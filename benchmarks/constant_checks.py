"""What `python -m benchmarks.constants` runs in a child, with a copy of the repository: tests, and rows of benchmarks.

Nothing of the repository is imported before a child knows its copy. So imports are in the functions.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

Rows = Iterator[tuple[str, float]]

OF_REPOSITORY = ("benchmarks", "kosmos_rag", "tests")
"""The packages that a child imports from its copy."""
_OPTIONS = ["-q", "-x", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-m", "not slow and not model"]
_PRELOADED = ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]


def run_in(root: Path, output: Path, check: str, arguments: Sequence[str]) -> None:
    """Run a check with the packages of a copy, and end the process with its exit code.

    Args:
        root: The copy.
        output: File for all that is printed.
        check: `tests` or `figures`.
        arguments: Files of tests, or names of `FIGURES`.
    """
    os.chdir(root)
    os.environ["PYTHONPATH"] = str(root)
    sys.path.insert(0, str(root))
    for name in [name for name in sys.modules if name.partition(".")[0] in OF_REPOSITORY]:
        del sys.modules[name]
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    code = run_tests(arguments) if check == "tests" else print_figures(arguments)
    sys.stdout.flush()
    os._exit(code)


def run_tests(files: Sequence[str]) -> int:
    """Run tests until one fails, and return the exit code of pytest."""
    pytest = importlib.import_module("pytest")
    return int(pytest.main([*files, *_OPTIONS, *_PRELOADED]))


def print_figures(names: Sequence[str]) -> int:
    """Print the rows of the named benchmarks as JSON; more is better in each."""
    print(json.dumps({row: value for name in names for row, value in FIGURES[name]()}))
    return 0


def measure_pages() -> Rows:
    """Yield the figures of each described page but those of the held-out half."""
    from benchmarks.page_descriptions import read_descriptions
    from benchmarks.page_files import FILES
    from benchmarks.parsing_pages import score_pages

    if not FILES.is_dir():
        return
    described = [*read_descriptions("first"), *read_descriptions("second")]
    for page, score in zip(described, score_pages(described), strict=True):
        name = f"{page.file}, page {page.number}"
        yield f"{name}: order", score.order
        yield f"{name}: breaks", score.breaks
        yield f"{name}: headings", score.heading_f1
        yield f"{name}: cells", score.cell_f1
        yield f"{name}: no invented tables", -score.invented_tables
        yield f"{name}: no false names", -score.false_names


def measure_pdf() -> Rows:
    """Yield the figures of generated PDF files of the development part, one of each style."""
    from benchmarks.parsing_pdf import measure_prose, measure_tables, read_text

    for name, breaks in measure_prose(read_text, held_out=False, seeds=1):
        yield f"{name}: no false breaks", -breaks.false
        yield f"{name}: whole paragraphs", breaks.whole
        yield f"{name}: no merged paragraphs", -breaks.merged
    yield from measure_tables(read_text, held_out=False, seeds=1, library_seeds=1)


def measure_tables() -> Rows:
    """Yield the F1 of the facts of each generated file, one of each case."""
    from benchmarks.parsing import score_files

    yield from score_files(held_out=False, copies=1)


FIGURES: Mapping[str, Callable[[], Rows]] = {
    "pages": measure_pages,
    "pdf": measure_pdf,
    "tables": measure_tables,
}
