"""The layers of docs/architecture.md, compared with the imports."""

import ast
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

import kosmos_rag
from benchmarks.doors import count_door
from benchmarks.source_trees import read_imports

PACKAGE = Path(kosmos_rag.__file__).parent
ROOT = PACKAGE.parent

# From the bottom to the top. A package imports packages of lower layers only; packages of one layer do not import
# each other.
LAYERS = (
    ("core",),
    ("answering", "models", "parsing", "storage"),
    ("ingestion", "retrieval"),
    ("indexing",),
    ("engine",),
    ("worker",),
    ("wings",),
    ("apps",),
    ("evaluation", "metering", "openai", "scim", "siem", "text2sql", "webhooks"),
)
LEVEL = {package: level for level, layer in enumerate(LAYERS) for package in layer}
WINGS = LAYERS[-1]
"""Folders that can be removed. Nothing imports them but what mounts them by name."""
KERNEL = {package for layer in LAYERS[: LEVEL["wings"]] for package in layer}
ABOVE_KERNEL = {"apps", *WINGS}
OPEN = {"core", "engine", "parsing"}
"""Packages of the kernel that apps and wings may import."""
FACES = ("auth", "cli", "client", "http", "integrations", "mcp")
SHARED = (
    "kosmos_rag.apps.auth",
    "kosmos_rag.apps.errors",
    "kosmos_rag.apps.faults",
    "kosmos_rag.apps.http.toolkit",
    "kosmos_rag.apps.problem_details",
)
"""What the faces share."""
TOOLKITS = (
    *SHARED,
    "kosmos_rag.apps.cli.common",
    "kosmos_rag.apps.cli.help",
    "kosmos_rag.apps.cli.options",
    "kosmos_rag.apps.client.transport",
    "kosmos_rag.apps.http.console.pages",
    "kosmos_rag.apps.http.console.rendering",
    "kosmos_rag.apps.http.console.sessions",
    "kosmos_rag.apps.http.console.trends",
    "kosmos_rag.apps.mcp.arguments",
    "kosmos_rag.apps.mcp.budget",
    "kosmos_rag.apps.mcp.registry",
    "kosmos_rag.apps.mcp.wings",
)
"""What wings take from the faces."""
SERVERS = {"kosmos_rag.apps.http.server", "kosmos_rag.apps.mcp.http", "kosmos_rag.apps.mcp.stdio"}
"""What the command line starts."""
ENGINE_DOORS = {"background", "database", "indexes", "ingest_pipeline", "telemetry"}
"""Properties of Engine for the worker and for tests."""
COMPONENTS = {"_components", "_parts"}
"""Attributes of Engine and Tenant with the components of the engine, for themselves and for tests."""
TESTS_OF_ALL = {
    "tests/integration/test_documented_code.py",
    "tests/integration/apps/http/console_images.py",
    "tests/integration/apps/http/test_console_browser.py",
}
"""Tests of all code in docs/ and of all pages of the console, with those of the wings."""
ENTRIES = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}
"""What is imported, and what is run, of the package as a whole."""
LONG = 600


def _files() -> list[Path]:
    return sorted(file for file in PACKAGE.rglob("*.py") if file not in ENTRIES)


def _package(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(file: Path, roots: Collection[str] = ("kosmos_rag",)) -> Iterator[tuple[int, str]]:
    """Yield line and module of each import of the package, wherever it stands in the file."""
    for node in read_imports(file):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] in roots)
        elif (node.module or "").split(".")[0] in roots:
            if node.module == "kosmos_rag":
                yield from ((node.lineno, f"kosmos_rag.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, str(node.module)


def _violations(allow: Callable[[str, str, str], bool]) -> list[str]:
    """Return the imports between packages of the library that a rule does not allow.

    Args:
        allow: Whether a package, in a file, may import a module.
    """
    return [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in _files()
        for line, module in _imports(file)
        if not allow(_package(file), str(file.relative_to(ROOT)), module)
    ]


def _imported_package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_packages__import_lower_layers_only() -> None:
    def allow(package: str, _file: str, module: str) -> bool:
        imported = _imported_package(module)
        return imported == package or LEVEL.get(imported, len(LAYERS)) < LEVEL[package]

    assert _violations(allow) == []


def test_kernel__names_no_wing() -> None:
    texts = [
        f"{file.relative_to(ROOT)} names {wing}"
        for file in _files()
        if _package(file) in KERNEL
        for wing in WINGS
        if f"kosmos_rag.{wing}" in file.read_text()
    ]
    assert texts == []


def test_apps_and_wings__take_engine_core_and_parsing_from_the_kernel() -> None:
    def allow(package: str, file: str, module: str) -> bool:
        imported = _imported_package(module)
        if package not in ABOVE_KERNEL or imported not in KERNEL - OPEN:
            return True
        return imported == "worker" and file.startswith("kosmos_rag/apps/cli/")  # the command line starts it

    assert _violations(allow) == []


def test_apps_and_wings__leave_the_doors_of_the_worker_to_it() -> None:
    texts = [
        f"{file.relative_to(ROOT)}:{node.lineno} uses {ast.unparse(node)}"
        for file in _files()
        if _package(file) in ABOVE_KERNEL
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        if (node.attr in COMPONENTS and ast.unparse(node.value) != "self")
        or (node.attr in ENGINE_DOORS and ast.unparse(node.value).split(".")[-1] in ("engine", "sync_engine"))
    ]
    assert texts == []


def test_faces__share_toolkits_alone() -> None:
    def allow(package: str, file: str, module: str) -> bool:
        if not module.startswith("kosmos_rag.apps."):
            return True
        if package in WINGS:
            return module.startswith(TOOLKITS)
        face, imported = file.split("/")[2], module.split(".")[2]
        if imported == face or module.startswith(SHARED):
            return True
        return face == "cli" and module in SERVERS

    assert _violations(allow) == []
    assert {path.name for path in (PACKAGE / "apps").iterdir() if (path / "__init__.py").exists()} == set(FACES)


@pytest.mark.parametrize(("package", "most"), [("core", 260), ("storage", 71)])
def test_doors__do_not_grow(package: str, most: int) -> None:
    assert count_door(package) <= most


def test_modules__do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    names = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in _files()
    }
    for name, file in names.items():
        targets = set()
        for node in read_imports(file):
            if node.col_offset > 0:  # inside a function: it is not part of a circle at import time
                continue
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names} & names.keys()
            elif node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names} & names.keys()
                targets |= whole or ({node.module} & names.keys())
        graph[name] = targets - {name}
    left = dict(graph)
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}


def test_every_package__is_described_in_the_architecture_page() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    packages = {_package(file) for file in _files()}
    assert packages == LEVEL.keys()
    assert [package for package in LEVEL if f"| `{package}` |" not in text] == []


def test_tests__of_wings_lie_in_folders_of_their_own() -> None:
    """So the tests of the kernel and of the faces pass where a wing is removed."""
    strangers = [
        f"{file.relative_to(ROOT)}:{line} imports {module}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if str(file.relative_to(ROOT)) not in TESTS_OF_ALL
        for line, module in _imports(file, ("kosmos_rag", "tests"))
        for wing in WINGS
        if wing in module.split(".")[1:3] and wing not in file.parts
    ]
    assert strangers == []


def test_entry_points__only_call_the_package() -> None:
    violations = []
    for file in (ROOT / "workers").glob("*.py"):
        for line, module in _imports(file):
            if not (module == "kosmos_rag.wings" or module.startswith("kosmos_rag.worker.commands.")):
                violations.append(f"{file.name}:{line} imports {module}")
    assert violations == [], "\n".join(violations)


def test_public_names__exist_and_are_sorted() -> None:
    assert kosmos_rag.__all__ == sorted(kosmos_rag.__all__)
    for name in kosmos_rag.__all__:
        assert getattr(kosmos_rag, name) is not None
    assert dir(kosmos_rag) == kosmos_rag.__all__
    assert not hasattr(kosmos_rag, "no_such_name")


def test_long_files__are_named_in_a_warning() -> None:
    lines = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in _files()}
    if long := [f"{name} ({count})" for name, count in lines.items() if count > LONG]:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn(f"more than {LONG} lines, is each of them one concept? {', '.join(long)}", stacklevel=1)
