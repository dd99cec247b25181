"""Move each numeric constant of parsing and retrieval up and down, and list those that no test and no figure misses.

    python -m benchmarks.constants FAMILY ... [--fast] [--only TEXT] [--again] [--json FILE] [--quick]

A constant is a number in capitals on the level of a module, or the default of a parameter or field. Members of an
enumeration are not: an interface defines these numbers. A constant is doubled, then halved. A share of 0 to 1 goes
half of the way to 1, then to 0. The tests of its family and the rows of its benchmarks run in a copy of the repository.
A constant is missed if a test fails or a row falls. Results are stored after each constant, and a later run continues
there; `--again` moves those again that nothing missed. A limit that a test sets for itself is listed apart: its default
may be any number, but a test exceeds it.
"""

import ast
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command import DATASETS, ROOT, command, parse, temporary_folder
from benchmarks.constant_checks import OF_REPOSITORY, run_in

_TIMEOUT_S = 900
_TOLERANCE = 1e-6
_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "site", "results", "node_modules")
_NOT_PRELOADED = (*OF_REPOSITORY, "__main__")
_CHILDREN = multiprocessing.get_context("forkserver")

Number = int | float


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Modules whose constants the same tests and benchmarks concern."""

    modules: Sequence[str]
    """Folders and files below kosmos_rag/."""
    tests: Sequence[str]
    """Folders and files below tests/."""
    slow_tests: Sequence[str] = ()
    """Those that run last, because they take longer."""
    figures: Sequence[str] = ()
    """Names of benchmarks in benchmarks/constant_checks.py."""


_HOSTILE = ("unit/parsing/test_hostile.py",)
FAMILIES: Mapping[str, Family] = {
    "pdf": Family(
        modules=["parsing/pdf"],
        tests=[
            "unit/parsing/test_pdf.py",
            "unit/parsing/test_pdf_letters.py",
            "unit/parsing/test_pdf_regions.py",
            "unit/parsing/test_pdf_tables.py",
            "unit/parsing/test_cases.py",
            "unit/parsing/test_ocr.py",
            "unit/parsing/test_places.py",
            "unit/parsing/test_limits.py",
        ],
        slow_tests=_HOSTILE,
        figures=["pages", "pdf"],
    ),
    "office": Family(
        modules=["parsing/office"],
        tests=[
            "unit/parsing/test_docx.py",
            "unit/parsing/test_docx_text.py",
            "unit/parsing/test_office.py",
            "unit/parsing/test_legacy_office.py",
            "unit/parsing/test_cases.py",
            "unit/parsing/test_limits.py",
        ],
        slow_tests=_HOSTILE,
        figures=["tables"],
    ),
    "tables": Family(
        modules=["parsing/tables"],
        tests=[
            "unit/parsing/test_tables.py",
            "unit/parsing/test_csv.py",
            "unit/parsing/test_number_format.py",
            "unit/parsing/test_legacy_office.py",
            "unit/parsing/test_office.py",
            "unit/parsing/test_html.py",
            "unit/parsing/test_cases.py",
            "unit/parsing/test_limits.py",
        ],
        slow_tests=_HOSTILE,
        figures=["tables", "pdf"],
    ),
    "web": Family(
        modules=["parsing/web"],
        tests=[
            "unit/parsing/test_html.py",
            "unit/parsing/test_web_content.py",
            "unit/parsing/test_exports.py",
            "unit/parsing/test_cases.py",
            "unit/parsing/test_limits.py",
        ],
        slow_tests=_HOSTILE,
        figures=["tables"],
    ),
    "mail": Family(
        modules=["parsing/mail"],
        tests=["unit/parsing/test_mail.py", "unit/parsing/test_eml.py", "unit/parsing/test_limits.py"],
        slow_tests=_HOSTILE,
    ),
    "text": Family(
        modules=["parsing/text"],
        tests=[
            "unit/parsing/test_text.py",
            "unit/parsing/test_markdown.py",
            "unit/parsing/test_markup.py",
            "unit/parsing/test_json.py",
            "unit/parsing/test_code.py",
            "unit/parsing/test_decode.py",
            "unit/parsing/test_csv.py",
            "unit/parsing/test_limits.py",
        ],
        slow_tests=_HOSTILE,
        figures=["tables"],
    ),
    "document": Family(
        modules=[f"parsing/{path.name}" for path in sorted((ROOT / "kosmos_rag" / "parsing").glob("*.py"))],
        tests=["unit/parsing", "unit/ingestion/chunking"],
        figures=["pages", "tables"],
    ),
    "sandbox": Family(
        modules=["parsing/sandbox"], tests=["unit/parsing/sandbox/test_wire.py"], slow_tests=["unit/parsing/sandbox"]
    ),
    "ranking": Family(
        modules=[
            "retrieval/fusion.py",
            "retrieval/freshness.py",
            "retrieval/rerank.py",
            "retrieval/pseudo_relevance.py",
            "retrieval/signals",
            "retrieval/conditions",
        ],
        tests=[
            "unit/retrieval/ranking",
            "unit/retrieval/signals",
            "unit/retrieval/conditions",
            "unit/retrieval/test_freshness.py",
        ],
        slow_tests=[
            "integration/retrieval/views/test_contract.py",
            "integration/retrieval/test_pseudo_relevance.py",
            "integration/retrieval/test_reranking.py",
        ],
    ),
    "words": Family(
        modules=[
            "retrieval/close_terms.py",
            "retrieval/edits.py",
            "retrieval/lexical.py",
            "retrieval/postings.py",
            "retrieval/snapshot.py",
            "retrieval/query.py",
            "retrieval/keyword",
            "retrieval/expansion",
        ],
        tests=["unit/retrieval"],
        slow_tests=[
            "integration/retrieval/test_close_terms.py",
            "integration/retrieval/test_expansion.py",
            "integration/retrieval/test_operators.py",
            "integration/retrieval/test_lexical_exactness.py",
        ],
    ),
    "search": Family(
        modules=[
            "retrieval/dense.py",
            "retrieval/filters.py",
            "retrieval/options.py",
            "retrieval/arrange.py",
            "retrieval/hydrate.py",
            "retrieval/resources.py",
            "retrieval/blocks",
            "retrieval/views",
        ],
        tests=["unit/retrieval"],
        slow_tests=[
            "integration/retrieval/views",
            "integration/retrieval/test_filters.py",
            "integration/retrieval/test_index_plans.py",
            "integration/retrieval/test_result_options.py",
            "integration/retrieval/test_operators.py",
        ],
    ),
}
_QUICK = Family(modules=["parsing/headings.py"], tests=["unit/parsing/test_headings.py"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """A number in the source."""

    module: str
    """Path below kosmos_rag/."""
    name: str
    value: Number
    begin: int
    """Offset of its expression in the bytes of the module."""
    end: int

    @property
    def key(self) -> str:
        """What its result is stored by."""
        return f"{self.module} {self.name}"

    @property
    def moves(self) -> list[Number]:
        """The values that it is moved to."""
        if isinstance(self.value, float) and 0 < self.value < 1:
            return [(1 + self.value) / 2, self.value / 2]
        if isinstance(self.value, int):
            return [self.value * 2] if self.value == 1 else [self.value * 2, self.value // 2]
        return [self.value * 2, self.value / 2]


def find_constants(source: bytes, module: str) -> Iterator[Constant]:
    """Yield the numbers of a module that can be doubled, so not 0."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for name, node in _numbers(ast.parse(source)):
        value = _evaluate(node)
        if value:
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            yield Constant(module=module, name=name, value=value, begin=begin, end=end)


def _numbers(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield names and expressions of constants and defaults."""
    for statement in tree.body:
        yield from ((name, value) for name, value in _assignments(statement) if name.isupper())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not any("Enum" in ast.unparse(base) for base in node.bases):
            for statement in node.body:
                yield from ((f"{node.name}.{name}", value) for name, value in _assignments(statement))
        elif isinstance(node, ast.FunctionDef):
            yield from _defaults(node)


def _assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            yield from ((ast.unparse(name), value) for name, value in zip(names, values, strict=True))


def _defaults(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if default is not None:
            yield f"{function.name}({argument.arg})", default


def _evaluate(node: ast.expr) -> Number | None:
    """Return the number that an expression of numbers has; None for others."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    if not all(isinstance(part, allowed) for part in ast.walk(node)):
        return None
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
    except (TypeError, ArithmeticError):
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class Copy:
    """A copy of the repository in which one constant at a time has another value."""

    def __init__(self, family: Family, folder: Path, *, fast: bool) -> None:
        self._family = family
        self._slow_tests = () if fast else family.slow_tests
        self._root = folder / "repository"
        shutil.copytree(ROOT, self._root, ignore=_NOT_COPIED)
        if (shared := DATASETS.parent).is_dir():
            (folder / shared.name).symlink_to(shared)
        self._preload()
        self._baseline = self._figures()
        if reason := self._failing_test(family.tests) or self._failing_test(self._slow_tests):
            raise SystemExit(f"without any change, {reason}")

    def constants(self) -> Iterator[Constant]:
        """Yield the constants of the family."""
        package = self._root / "kosmos_rag"
        for name in self._family.modules:
            for path in sorted((package / name).rglob("*.py")) if (package / name).is_dir() else [package / name]:
                yield from find_constants(path.read_bytes(), path.relative_to(package).as_posix())

    def find_evidence(self, constant: Constant) -> str:
        """Return what misses the constant while it has another value; "" if nothing does."""
        checks = (
            self._falling_row,
            lambda: self._failing_test(self._family.tests),
            lambda: self._failing_test(self._slow_tests),
        )
        for check in checks:  # all values by what is fast first
            for value in constant.moves:
                with self._moved(constant, value):
                    evidence = check()
                if evidence:
                    return f"{value:g}: {evidence}"
        return ""

    @contextmanager
    def _moved(self, constant: Constant, value: Number) -> Iterator[None]:
        path = self._root / "kosmos_rag" / constant.module
        source = path.read_bytes()
        path.write_bytes(source[: constant.begin] + repr(value).encode() + source[constant.end :])
        try:
            yield
        finally:
            path.write_bytes(source)

    def tests_that_set(self, constant: Constant) -> list[str]:
        """Return the tests that name the constant: they set or read it."""
        name = constant.name
        files = sorted((self._root / "tests").rglob("*.py")) if name.isupper() else []
        module = Path(constant.module).stem
        return [
            path.name
            for path in files
            if name in (text := path.read_text(encoding="utf-8")) and module in text and "monkeypatch" in text
        ]

    def _failing_test(self, tests: Sequence[str]) -> str:
        if not tests:
            return ""
        code, output = self._run("tests", [f"tests/{name}" for name in tests])
        if code in (0, 5):
            return ""
        lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return lines[0] if lines else output.strip()[-200:] or "the tests do not end"

    def _falling_row(self) -> str:
        rows = self._figures()
        for name, value in self._baseline.items():
            if rows.get(name, float("-inf")) < value - _TOLERANCE:
                return f"{name}: {value:.3f} -> {rows.get(name, float('nan')):.3f}"
        return ""

    def _figures(self) -> dict[str, float]:
        if not self._family.figures:
            return {}
        code, output = self._run("figures", self._family.figures)
        rows: dict[str, float] = json.loads(output.splitlines()[-1]) if code == 0 else {}
        return rows

    def _run(self, check: str, arguments: Sequence[str]) -> tuple[int | None, str]:
        """Run a check in a child that imports the copy, and return its exit code and output."""
        output = self._root / "output.txt"
        process = _CHILDREN.Process(target=run_in, args=(self._root, output, check, arguments))
        process.start()
        process.join(_TIMEOUT_S)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode, output.read_text(encoding="utf-8", errors="replace")

    def _preload(self) -> None:
        """Have the server of children import the libraries that tests and benchmarks use, so that no child has to."""
        code = "import json, sys, tests.conftest, benchmarks.parsing_pages; print(json.dumps([*sys.modules]))"
        environment = os.environ | {"PYTHONPATH": str(self._root)}
        process = subprocess.run(
            [sys.executable, "-c", code], cwd=self._root, env=environment, capture_output=True, text=True, check=True
        )
        names = json.loads(process.stdout.splitlines()[-1])
        _CHILDREN.set_forkserver_preload([name for name in names if name.partition(".")[0] not in _NOT_PRELOADED])


def measure(
    name: str, family: Family, file: Path | None, *, only: str = "", again: bool = False, fast: bool = False
) -> None:
    """Move the constants of a family and store in a file what misses each.

    Args:
        name: name of the family.
        family: its modules, tests and figures.
        file: the results so far; None stores nothing.
        only: text in the path or name of the constants.
        again: whether those that nothing missed are moved again.
        fast: whether the slow tests are left out.
    """
    results = json.loads(file.read_text()) if file and file.is_file() else {}
    copy = Copy(family, temporary_folder(), fast=fast)
    for constant in copy.constants():
        stored = results.get(constant.key, {})
        is_known = stored.get("value") == constant.value and not (again and not stored["missed_by"])
        if only not in constant.key or is_known:
            continue
        missed_by = copy.find_evidence(constant)
        set_by = [] if missed_by else copy.tests_that_set(constant)
        results[constant.key] = {"family": name, "value": constant.value, "missed_by": missed_by, "set_by": set_by}
        print(f"{constant.key} = {constant.value}: {missed_by or set_by or 'nothing misses it'}", flush=True)
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def report(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Print how many constants of each family are missed, and those that are not."""
    print(f"\n{'family':12}{'constants':>12}{'missed':>12}{'set':>12}{'not missed':>12}")
    for name in dict.fromkeys(result["family"] for result in results.values()):
        of = [result for result in results.values() if result["family"] == name]
        missed = sum(bool(result["missed_by"]) for result in of)
        set_by = sum(bool(result["set_by"]) for result in of)
        print(f"{name:12}{len(of):12}{missed:12}{set_by:12}{len(of) - missed - set_by:12}")
    for key, result in results.items():
        if not result["missed_by"] and not result["set_by"]:
            print(f"nothing misses {key} = {result['value']}")


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "constants.json")
    parser.add_argument("families", nargs="*", choices=[*FAMILIES, []], metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--only", default="", metavar="TEXT", help="constants with this text in their path or name")
    parser.add_argument("--again", action="store_true", help="move those again that nothing missed")
    parser.add_argument("--fast", action="store_true", help="leave out the slow tests")
    arguments = parse(parser)
    if arguments.quick:
        measure("quick", _QUICK, None)
        return
    for name in arguments.families:
        measure(name, FAMILIES[name], arguments.json, only=arguments.only, again=arguments.again, fast=arguments.fast)
    if arguments.json.is_file():
        report(json.loads(arguments.json.read_text()))


if __name__ == "__main__":
    main()
