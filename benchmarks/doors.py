"""Count the names that other packages take from a package of the library."""

import ast
from pathlib import Path

import kosmos_rag
from benchmarks.source_trees import read_imports

_PACKAGE = Path(kosmos_rag.__file__).parent


def count_door(package: str) -> int:
    """Return the number of distinct names that other packages import from a package."""
    prefix = f"kosmos_rag.{package}."
    return len(
        {
            alias.name
            for file in _PACKAGE.rglob("*.py")
            if file.relative_to(_PACKAGE).parts[0] != package
            for node in read_imports(file)
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(prefix)
            for alias in node.names
        }
    )
