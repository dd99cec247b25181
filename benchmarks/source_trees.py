"""Read the statements of Python files without their expressions, which are nine of ten nodes of a tree."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
"""Fields of statements that hold other statements."""

Import = ast.Import | ast.ImportFrom


def walk_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and each statement below it, in no particular order."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        for name in _BLOCKS:
            pending += getattr(node, name, ())


@cache
def read_imports(file: Path) -> tuple[Import, ...]:
    """Return the imports of a file, those inside of functions too, by line."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = (node for node in walk_statements(tree) if isinstance(node, Import))
    return tuple(sorted(nodes, key=lambda node: node.lineno))
