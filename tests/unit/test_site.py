"""The documentation site: built strictly, complete, and without other servers."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kosmos_rag
from kosmos_rag import Tenant
from kosmos_rag.apps.problem_details import PROBLEMS
from kosmos_rag.core.config.keys import iter_documented_keys
from kosmos_rag.core.config.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def _page(site: Path, name: str) -> str:
    return (site / name / "index.html").read_text()


def test_site__loads_nothing_from_other_servers(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    loading = r"<(?:script|img|iframe|link[^>]*rel=\"?(?:stylesheet|preconnect|preload))[^>]*(?:src|href)=\"?https?:"
    assert [page for page in pages if re.search(loading, page.read_text())] == []


def test_reference__is_complete(site: Path) -> None:
    settings, library, errors = (_page(site, name) for name in ("settings", "reference/library", "reference/errors"))
    assert [key for key, _ in iter_documented_keys(Settings) if f"<code>{key}</code>" not in settings] == []
    assert [name for name in kosmos_rag.__all__ if name[0] != "_" and f".{name}" not in library] == []
    methods = [name for name in dir(Tenant) if name[0] != "_"]
    assert [name for name in methods if f'id="kosmos_rag.engine.tenant.Tenant.{name}"' not in library] == []
    assert [problem.name for problem in PROBLEMS.values() if problem.name not in errors] == []
    assert "--until-idle" in _page(site, "reference/commands")
    assert "/v1/search" in _page(site, "reference/http")
    assert "max_tokens" in (tools := _page(site, "reference/mcp"))
    assert "query_database" in tools


def test_search__has_the_headings(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    locations = {entry["location"] for entry in index["docs"]}
    assert {"glossary/", "settings/#ragchunking", "parsing/#formats"} <= locations
