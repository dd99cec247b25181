"""The rules for docstrings, read from the source: a short first line, whole sentences, and parameters described."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

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

# Words that add nothing to the name of a parameter.
FILLERS = """
a all an and are as at by each every for from id ids in instance is it its name names object of on one open or that the
their them these this those to use used what when which who whom whose with
"""
# What the names of common parameters say already.
IMPLIED = {
    "caller": "administrator identity reader service",
    "cursor": "page",
    "data": "archive document file html mail",
    "database": "connections",
    "embedder": "model",
    "owner": "tenant",
    "principals": "reader",
    "query": "question search wording",
    "question": "language natural query",
    "reader": "caller",
    "request": "call question search",
    "tenant_id": "tenant",
}
# A description with one of these has more than a name: a default, a limit, a syntax, a condition.
_INFORMATIVE = re.compile(r"[`\d;:]|\b(?:None|any|empty|if|no|not|where|whether|without)\b", re.IGNORECASE)
_ENTRY = re.compile(r" {4}([`*\w][^:]*?): (.*(?:\n {5,}.*)*)")
_FRAGMENT = re.compile(
    r"(?:^|[.:]\s+)((?:None|Empty|0|False|True|Nothing) (?:if|where|without|for|after|outside|unless) [^.]*\.)"
)

# Their parameters are described for the protocol, in `Annotated[…, Field(description=…)]`.
DESCRIBED_BY_ANNOTATION = {"apps/mcp/tools.py", "text2sql/tools.py"}

# Decorators after which the docstring still has to describe the parameters. A command or a route describes its
# parameters in its decorator or signature.
PLAIN_DECORATORS = {"asynccontextmanager", "classmethod", "contextmanager", "staticmethod"}

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | Definition


def _definitions(node: ast.Module | ast.ClassDef, *, public: bool) -> Iterator[tuple[Documented, bool]]:
    yield node, public
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _definitions(child, public=public and not child.name.startswith("_"))
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, public and not child.name.startswith("_")


@cache
def _trees() -> list[tuple[str, ast.Module]]:
    """Name and tree of each module of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return [(file.relative_to(PACKAGE).as_posix(), ast.parse(file.read_text(encoding="utf-8"))) for file in files]


@cache
def _package() -> list[tuple[str, Documented, bool]]:
    """Place and node of each definition of the package, and whether it is public."""
    return [
        (f"{name}:{1 if isinstance(node, ast.Module) else node.lineno}", node, public)
        for name, tree in _trees()
        for node, public in _definitions(tree, public=True)
    ]


def _nested_definitions(
    tree: ast.Module,
) -> Iterator[tuple[str, Definition]]:
    """Yield each definition, wherever it stands, with the name of what it stands in."""
    statements: list[tuple[str, ast.AST]] = [("", statement) for statement in tree.body]
    while statements:
        owner, node = statements.pop()
        if isinstance(node, Definition):
            yield owner, node
            owner = node.name
        # Definitions stand in statements alone.
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            children = getattr(node, name, ())
            statements += [(owner, child) for child in children] if isinstance(children, list) else []


def _takes_descriptions(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator) not in PLAIN_DECORATORS for decorator in function.decorator_list)


def _undescribed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in SELF_EXPLAINING | {"self", "cls"}]


def _stems(text: str) -> set[str]:
    words = re.findall(r"[A-Za-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).replace("_", " "))
    return {re.sub(r"(?<=\w{3})(?:ings?|ers?|ies|es|ed|s|y|e)$", "", word.lower()) for word in words}


def _entries(docstring: str) -> list[tuple[str, str]]:
    """Return name and description of each parameter that a docstring describes."""
    _, _, section = docstring.partition("Args:\n")
    return [(name.strip("*`"), description) for name, description in _ENTRY.findall(section.split("\n\n")[0])]


def find_empty_entries(node: Definition, owner: str = "") -> list[str]:
    """Return the parameters whose description repeats names: their own, their type's, the function's or the owner's."""
    entries = _entries(ast.get_docstring(node) or "")
    if not entries:
        return []
    functions = [node] if not isinstance(node, ast.ClassDef) else node.body
    types = {
        argument.arg: ast.unparse(argument.annotation)
        for function in functions
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and (function is node or function.name == "__init__")
        for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        if argument.annotation
    }
    return [
        name
        for name, description in entries
        if not _INFORMATIVE.search(description)
        and _stems(description) - _stems(FILLERS)
        <= _stems(" ".join((name, IMPLIED.get(name, ""), types.get(name, ""), node.name, owner)))
    ]


def find_fragments(node: Documented) -> list[str]:
    """Return the parts of a docstring before its parameters that have no verb."""
    text = " ".join((ast.get_docstring(node) or "").split("Args:")[0].split())
    return _FRAGMENT.findall(text)


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


def test_parameters__are_not_described_by_their_names() -> None:
    violations = []
    for file, tree in _trees():
        for owner, node in _nested_definitions(tree):
            violations += [
                f"{file}:{node.lineno} {node.name} says nothing of {name}: remove the line, or add what it is for"
                for name in find_empty_entries(node, owner)
            ]
    assert violations == [], "\n".join(violations)


def test_docstrings__are_whole_sentences() -> None:
    violations = [
        f"{place} has no verb, write `The result is …`: {fragment}"
        for place, node, _ in _package()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for fragment in find_fragments(node)
    ]
    assert violations == [], "\n".join(violations)


@pytest.mark.parametrize(
    ("parameter", "description", "is_empty"),
    [
        ("tenant_id: UUID", "The tenant.", True),
        ("embedder: Embedder", "The embedding model.", True),
        ("key: PageKey", "the page.", True),
        ("name: str", "name of the passage.", True),
        ("name: str", "name of the passage; None for all.", False),
        ("passages: list[str]", "Passages, best first.", False),
        ("limit: int", "Milliseconds.", False),
    ],
)
def test_empty_entries__repeat_the_names_of_the_signature(parameter: str, description: str, is_empty: bool) -> None:
    name = parameter.partition(":")[0]
    source = f'def rank_passages({parameter}):\n    """Rank.\n\n    Args:\n        {name}: {description}\n    """'
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert find_empty_entries(function) == [name] * is_empty


def test_fragments__are_found_without_their_verb() -> None:
    function = ast.parse(
        'def rank():\n    """Return the best. None if there is none.\n\n    The result is 0 if all fail."""'
    )
    assert isinstance(function.body[0], ast.FunctionDef)
    assert find_fragments(function.body[0]) == ["None if there is none."]
