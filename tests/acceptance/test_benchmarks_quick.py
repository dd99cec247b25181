"""Every benchmark that the Makefile or a document names, run with `--quick`: its command works and prints its table."""

import re
import runpy
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from benchmarks import bounds, walk
from benchmarks.constants import FAMILIES
from benchmarks.documentation.trees import quick_tree
from benchmarks.page_files import FILES
from kosmos_rag.core.config import DatabaseSettings
from tests.commands import set_variables

ROOT = Path(__file__).parents[2]

TABLES = {
    "analytics": r"signals +all +\d+ questions  rank 1 [\d.]+  top 3 [\d.]+",
    "answers": r"examples: \{'questions': 3, 'refused_without': \d.*'refused': 0\.0, 'auc': \d",
    "audit": r'"who_saw_p50_ms": [\d.]+',
    "citus": r"publishing, use_nodes \| [\d.]+ \||skipped: it needs --programs",
    "console": r"\| `/health` \|( [\d.]+ \|){4}",
    "constants": r"parsing/headings\.py \w+ = \d+: ",
    "conversations": r"8000 tokens: \{'conversations': 1, .*'cached prefix': 0\.[5-9]",
    "corporate": r"corporate, own +recall@1 [\d.]+  recall@5 [\d.]+",
    "documentation": r"in context [\d.]+, in answer, where answered [\d.]+",
    "dashboards": r"picture: .+\.png",
    "fairness": r'"targets": \{',
    "filters": r"filter on a ticket +│ 0.1 % +│ kosmos_rag +│ 50 +│ exact, by document",
    "gpu": r"question: library, 8 threads, a second: [\d.]+",
    "ingest": r"ratio_to_bare +[\d.]+",
    "known_items": r"(?s)zh_Hans, 2 of 2 letters .*en, two words +\d+",
    "keyword": r"search_p95_ms +[\d.]+ +[\d.]+",
    "parsing": r"xlsx +1\.000",
    "parsing_pages": r"(?m)real pages are left out|^right +[\d.]+$",
    "parsing_pdf": r"tables, held out +F1 [\d.]+",
    "peers": r"the default, torch +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d., ]+",
    "peers.ingest": r"\| kosmos_rag, the files by a worker +\| +[\d.]+ \|",
    "permissions": r"every container changes +300 documents +[\d.]+ s +[\d.]+ CPU s",
    "quality": r"fused by default +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+",
    "question": r"\| now \|( [\d.]+ \|){5}",
    "reranker.deadline": r"p50 [\d.]+ ms, p99 [\d.]+ ms, slowest [\d.]+ ms",
    "reranker.server": r" +30000 +50 +1 +100% +\d+",
    "scale": r"lexical +kosmos +50 % +\S.* +500 +[\d.]+",
    "schema.curve": r"10 tables, budget 900: \d+ tokens on average, recall [\d.]+",
    "schema.databases": r"\d+ questions  database_first [\d.]+",
    "schema.example": r"all +\d+ questions  model [\d.]+  model and column [\d.]+",
    "schema.values": r"exact [\d.]+  one typo [\d.]+",
    "schema.joins": r"all +\d+ questions  needed tables [\d.]+",
    "schema.spider": r"\| all databases: the right one first \|( [\d.]+ \|){5}",
    "schema.transfer": r"the question's database: R-precision of tables \| [\d.]+",
    "schema.tuning": r"held out  chosen +database_first [\d.]+",
    "service": r'"targets": \{',
    "sources": r"sql_version +30 documents +[\d.]+ CPU s +[\d.]+ MB read +0 loaded",
    "start": r"\| from the file cache \|( [\d.]+ \|){5}",
    "slo": r"retrieval, P50 +[\d.e+]+ ms +100 +> 200",
    "walk": r"\| search, by the database \|( \d+ \|){4}",
    "worker": r"memory: \{'largest_mb_until_10': [\d.]+",
}
"""What the table of each benchmark holds, by the module's name."""
OF_MODELS = {
    "reranker.latency": r"onnx int8, batches of 4, 64 tokens +[\d.]+",
    "reranker.train": r"(?s)\nreranked .+\ncacm, 4 queries.+\nreranked ",
}
"""Those that are about cross-encoders: a minute or two of loading, exporting and training models."""
OWN_SERVER = {"peers", "peers.ingest", "start"}
"""Those that give each system a database: they start a server of their own."""
BOUNDS = yaml.safe_load((ROOT / "benchmarks" / "bounds.yaml").read_text())
QUICK_GROUPS = {
    "documentation": quick_tree().name,
    "parsing": "development",
    "parsing_pages": "first part",
    "parsing_pdf": "development",
}
"""The group that a quick run has figures of, where it is not `all`."""
_COMMAND = re.compile(r"python\)? -m benchmarks\.([\w.]*\w)")


def _run(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], options: Sequence[str] = ()
) -> str:
    """Run a benchmark as its command does, and return what it prints."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", [name, "--quick", *options])
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)  # as another benchmark imported it
    with warnings.catch_warnings():
        # The command runs in a process of its own, where a deprecation within a library is no error.
        warnings.simplefilter("default")
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    return capfd.readouterr().out


@pytest.mark.slow  # all of them: a tenth of the suite's time, and what they test is not the product
@pytest.mark.parametrize("name", TABLES)
def test_quick_run__prints_the_table(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if name not in OWN_SERVER:
        set_variables(monkeypatch, request.getfixturevalue("database"))
    assert re.search(TABLES[name], _run(name, monkeypatch, capfd))


def test_walk__keeps_to_the_limits_of_the_architecture_page(
    database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_variables(monkeypatch, database)
    walks = walk.measure(tmp_path)
    limits = {"search, by the database": (8, 21, 72)}
    if walk.HAS_MEMORY_VIEW:
        limits["search, in memory"] = (5, 23, 90)
    for name, (frames, modules, functions) in limits.items():
        assert walks[name].driver_frames <= frames
        assert len(walks[name].modules) <= modules, walks[name].modules
        assert len(walks[name].functions) <= functions, walks[name].functions
    transactions = {name: profile.transactions for name, profile in walks.items()}
    assert transactions.pop("search, in memory", 0) == 0
    assert transactions == {
        "search, by the database": 1, "context": 1, "answer": 1, "new document": 2, "unchanged document": 1
    }  # fmt: skip


def test_constants__are_of_modules_and_tests_that_exist() -> None:
    paths = [
        *(ROOT / "kosmos_rag" / name for family in FAMILIES.values() for name in family.modules),
        *(ROOT / "tests" / name for family in FAMILIES.values() for name in (*family.tests, *family.slow_tests)),
    ]
    assert [path for path in paths if not path.exists()] == []


@pytest.mark.parametrize(
    "name",
    # As the quick runs themselves: they measure again what `test_quick_run__prints_the_table` measures.
    [
        name if name in {"schema.joins", "schema.values"} else pytest.param(name, marks=pytest.mark.slow)
        for name in BOUNDS
    ],
)
def test_run__fails_where_a_figure_is_outside_its_bounds(
    name: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    if name == "parsing_pages" and not FILES.is_dir():
        pytest.skip("the folder of real pages is absent")
    if name in {"documentation", "schema.spider", "schema.example"}:
        set_variables(monkeypatch, request.getfixturevalue("database"))
    group = QUICK_GROUPS.get(name, "all")
    figure = next(iter(next(iter(BOUNDS[name].values()))))
    file = tmp_path / "bounds.yaml"
    file.write_text(yaml.safe_dump({name: {group: {figure: ">= 1e9"}}}))
    with pytest.raises(SystemExit, match=re.escape(f"{group}: {figure} is ")):
        _run(name, monkeypatch, capfd, ["--bounds", str(file)])


def test_bounds__are_of_the_commands_that_the_makefile_runs() -> None:
    targets = re.findall(
        r"^bench-(?:parsing|docs|schema):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert len(targets) == 3
    assert set(_COMMAND.findall("".join(targets))) == BOUNDS.keys()


@pytest.mark.parametrize(
    ("value", "bound", "is_outside"), [(0.9, ">= 0.9", False), (0.89, ">= 0.9", True), (3, "<= 2", True)]
)
def test_exit_outside__names_the_figures_and_their_bounds(
    tmp_path: Path, value: float, bound: str, is_outside: bool
) -> None:
    file = tmp_path / "bounds.yaml"
    file.write_text(yaml.safe_dump({"parsing": {"all": {"F1": bound}, "not measured": {"F1": ">= 2"}}}))
    figures = {"all": {"F1": value}}
    if not is_outside:
        bounds.exit_outside(file, "parsing", figures)
        return
    with pytest.raises(SystemExit, match=f"all: F1 is {value:.3f}, and must be {bound}"):
        bounds.exit_outside(file, "parsing", figures)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", OF_MODELS)
def test_quick_run__of_models_prints_the_table(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert re.search(OF_MODELS[name], _run(name, monkeypatch, capfd))


def test_published_commands__are_all_run_here() -> None:
    published = [ROOT / "Makefile", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = {name for file in published for name in _COMMAND.findall(file.read_text(encoding="utf-8"))}
    assert names == TABLES.keys() | OF_MODELS.keys()
