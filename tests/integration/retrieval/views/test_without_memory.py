"""Without the module of the memory, the database answers every search."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import kosmos_rag
from kosmos_rag.core.config import DatabaseSettings

PACKAGE = Path(kosmos_rag.__file__).parent
VIEWS = PACKAGE / "retrieval" / "views"
SEARCH = """
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder

with Engine(Settings.load(), embedder=HashingEmbedder(dimensions=768)) as engine:
    tenant = engine.tenant({tenant!r})
    tenant.ingest([SourceDocument(source="leave.md", data=b"Annual leave is 25 days.")])
    plans = {{stats.plan for _ in range(30) for stats in tenant.search("annual leave").retrievers.values()}}
    print(len(tenant.search("annual leave").hits), *sorted(plans), sep=",")
"""


def test_package__searches_without_the_module(
    shared_database: DatabaseSettings, tenant_name: str, tmp_path: Path
) -> None:
    copied = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PACKAGE.parent / "migrations", tmp_path / "migrations")
    (copied / VIEWS.relative_to(PACKAGE) / "memory.py").unlink(missing_ok=True)
    urls = {f"KOSMOS_DATABASE__{key.upper()}": getattr(shared_database, key) for key in ("url", "worker_url")}
    process = subprocess.run(
        [sys.executable, "-c", SEARCH.format(tenant=tenant_name)],
        cwd=tmp_path,
        env={
            **os.environ,
            **urls,
            "PYTHONPATH": str(tmp_path),
            "KOSMOS_RAG__RERANKING__ENABLED": "false",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout.strip() == "1,exact scan", process.stderr


def test_modules__import_no_single_view() -> None:
    """Only the list of the views names them, and what searches the database alone."""
    importers = {
        (str(file.relative_to(PACKAGE)), node.module.rpartition(".")[2])
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kosmos_rag.retrieval.views.")
        if node.module is not None and not node.module.endswith(".base")
    }
    assert importers - {("retrieval/views/__init__.py", "memory")} == {
        ("retrieval/views/__init__.py", "database"),
        ("retrieval/blocks/loading.py", "database"),
        ("indexing/known_items.py", "database"),
        ("indexing/live_recall.py", "database"),
    }
