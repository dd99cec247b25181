"""The layers of docs/architecture.md, held against the imports."""

import ast
import re
from pathlib import Path

import pytest

import kosmos_rag

PACKAGE = Path(kosmos_rag.__file__).parent
ROOT = PACKAGE.parent
BASE = {
    *("bm25", "config", "errors", "explanation", "logs", "metrics", "observation", "ports", "problems", "prometheus"),
    *("records", "sentences", "tracing", "version"),
}

# What each part may import beside the base. A stage never imports a later one.
MAY_IMPORT: dict[str, set[str]] = {
    **{name: set() for name in BASE},
    "storage": set(),
    "embedding": set(),
    "testing": set(),
    "context": set(),
    "answering": {"context"},
    "keyword": set(),
    "signals": set(),
    "expansion": set(),
    "language_model": set(),
    "schema": set(),
    "sources": set(),
    "ingestion": {"storage", "embedding", "sources"},
    "indexing": {"storage", "embedding"},
    "evaluation": {"storage", "sources"},
    "reembedding": {"storage", "embedding", "ingestion", "indexing", "evaluation"},
    "jobs": {"storage", "sources", "schema", "ingestion"},
    "audit": {"storage"},
    "ranking": {"embedding"},
    "presets": {"storage", "signals"},
    "retrieval": {"storage", "embedding", "expansion", "ranking", "signals"},
    "experiments": {"audit", "storage", "evaluation", "presets", "retrieval"},
    "parts": {"answering", "storage", "ingestion", "indexing", "reembedding", "retrieval", "presets", "experiments"},
    "scope": {
        "experiments",
        "audit",
        "storage",
        "ingestion",
        "indexing",
        "reembedding",
        "jobs",
        "context",
        "answering",
        "presets",
        "parts",
    },
    "engine": {
        "answering",
        "experiments",
        "storage",
        "embedding",
        "ingestion",
        "indexing",
        "reembedding",
        "language_model",
        "ranking",
        "retrieval",
        "presets",
        "parts",
        "scope",
    },
    "guard": {"storage", "indexing", "retrieval", "evaluation", "engine"},
    "grounding": {"expansion", "schema", "scope"},
    "worker": {
        "storage",
        "audit",
        "sources",
        "schema",
        "ingestion",
        "indexing",
        "jobs",
        "engine",
        "experiments",
        "guard",
        "grounding",
    },
    "async_engine": {"engine", "parts", "scope"},
    "console": set(),
    "service": {
        "answering",
        "async_engine",
        "console",
        "engine",
        "grounding",
        "guard",
        "jobs",
        "presets",
        "schema",
        "scope",
        "storage",
    },
    "client": set(),
    "mcp": {"async_engine", "engine", "service", "storage"},
    "adapters": {"scope"},
    "diagnosis": {"storage", "embedding"},
    "cli": {
        "storage",
        "embedding",
        "ingestion",
        "reembedding",
        "sources",
        "engine",
        "evaluation",
        "language_model",
        "scope",
        "schema",
        "guard",
        "grounding",
        "keyword",
        "diagnosis",
        "service",
        "mcp",
        "worker",
    },
}


def _part(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(file: Path) -> set[str]:
    """Parts of kosmos_rag that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = inside if node.module == "kosmos_rag" else [node.module]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("kosmos_rag.")}
    return found


FILES = sorted(file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "__init__.py")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_module__imports_only_what_its_layer_may(file: Path) -> None:
    part = _part(file)
    # Of the base, only what sets up logging reads settings.
    base = BASE if part not in BASE or part == "logs" else BASE - {"config"}
    assert _imports(file) <= MAY_IMPORT[part] | base | {part}


def test_every_part_has_its_place_in_the_document() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert {_part(file) for file in FILES} == set(MAY_IMPORT)
    for part, allowed in MAY_IMPORT.items():
        if part not in BASE:
            row = re.search(rf"^\| `{part}` \|.*\| ([^|]*) \|$", text, re.MULTILINE)
            assert row, f"{part} has no row in docs/architecture.md"
            assert set(re.findall(r"`(\w+)`", row[1])) == allowed, part


def test_workers_use_public_names_only() -> None:
    for file in (ROOT / "workers").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kosmos_rag"):
                if node.module == "kosmos_rag.logs":
                    continue
                assert node.module == "kosmos_rag"
                assert {alias.name for alias in node.names} <= set(kosmos_rag.__all__)


def test_public_names__are_all_there_and_sorted() -> None:
    assert kosmos_rag.__all__ == sorted(kosmos_rag.__all__)
    for name in kosmos_rag.__all__:
        assert getattr(kosmos_rag, name) is not None
    assert dir(kosmos_rag) == kosmos_rag.__all__
    assert not hasattr(kosmos_rag, "nothing_of_the_kind")


def test_files_are_of_a_size_that_can_be_read() -> None:
    long = [str(file) for file in FILES if len(file.read_text().splitlines()) > 400]
    assert long == []
