"""The rules for docstrings, read from the source: a short first line, and parameters described."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import kosmos_rag

PACKAGE = Path(kosmos_rag.__file__).parent

MAX_WORDS = 16
MAX_UNDESCRIBED_PARAMETERS = 2

# Parameters that mean the same in every function.
SELF_EXPLAINING = {
    "collection",
    "connection",
    "name",
    "owner",
    "query",
    "question",
    "settings",
    "tenant",
    "tenant_id",
    "text",
}

# Their parameters are described for the protocol, in `Annotated[…, Field(description=…)]`.
DESCRIBED_BY_ANNOTATION = {"apps/mcp/tools.py", "text2sql/tools.py"}

# Decorators after which the docstring still has to describe the parameters. A command or a route describes its
# parameters in its decorator or signature.
PLAIN_DECORATORS = {"asynccontextmanager", "classmethod", "contextmanager", "staticmethod"}

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(node: ast.Module | ast.ClassDef, *, public: bool) -> Iterator[tuple[Documented, bool]]:
    yield node, public
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _definitions(child, public=public and not child.name.startswith("_"))
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, public and not child.name.startswith("_")


@cache
def _package() -> list[tuple[str, Documented, bool]]:
    """Place and node of each definition of the package, and whether it is public."""
    definitions: list[tuple[str, Documented, bool]] = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node, public in _definitions(ast.parse(file.read_text(encoding="utf-8")), public=True):
            line = 1 if isinstance(node, ast.Module) else node.lineno
            definitions.append((f"{file.relative_to(PACKAGE).as_posix()}:{line}", node, public))
    return definitions


def _takes_descriptions(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator) not in PLAIN_DECORATORS for decorator in function.decorator_list)


def _undescribed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in SELF_EXPLAINING | {"self", "cls"}]


def test_first_lines__are_one_short_sentence() -> None:
    violations = []
    for place, node, _ in _package():
        summary = (ast.get_docstring(node) or ".").splitlines()[0]
        if len(summary.split()) > MAX_WORDS:
            violations.append(f"{place} has more than {MAX_WORDS} words: {summary}")
        if not summary.endswith("."):
            violations.append(f"{place} does not end with a full stop: {summary}")
    assert violations == [], "\n".join(violations)


def test_public_definitions__have_a_docstring() -> None:
    violations = [
        f"{place} {getattr(node, 'name', 'module')}"
        for place, node, public in _package()
        if public and ast.get_docstring(node) is None and not (isinstance(node, ast.Module) and not node.body)
    ]
    assert violations == [], "\n".join(violations)


def test_public_functions__describe_their_parameters() -> None:
    violations = []
    for place, node, public in _package():
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not public or _takes_descriptions(node):
            continue
        described = "Args:" in (ast.get_docstring(node) or "") or place.split(":")[0] in DESCRIBED_BY_ANNOTATION
        if not described and len(names := _undescribed(node)) > MAX_UNDESCRIBED_PARAMETERS:
            violations.append(f"{place} {node.name} has no `Args:` for {', '.join(names)}")
    assert violations == [], "\n".join(violations)
