"""Load the SQL statements of the library by name.

Each .sql file has statements after a line `-- name: …`; values are always bound. Python code contains no SQL.
"""

import re
from functools import cache
from importlib.resources import files
from typing import LiteralString

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_OURS = re.compile(r"\bkosmos\.(\w+)")


def parse(text: str) -> dict[str, str]:
    """Split the text of one .sql file into its statements.

    Raises:
        ValueError: a name occurs twice, or there is text before the first name.
    """
    head, *pairs = _NAME.split(text)
    if head.strip():
        raise ValueError(f"text before the first '-- name:' line: {head.strip()[:40]!r}")
    statements: dict[str, str] = {}
    for name, body in zip(pairs[::2], pairs[1::2], strict=True):
        if name in statements:
            raise ValueError(f"statement {name!r} occurs twice")
        statements[name] = body.strip()
    return statements


@cache
def _load() -> dict[str, LiteralString]:
    statements: dict[str, LiteralString] = {}
    for file in sorted(files(__package__).iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            parsed = parse(file.read_text(encoding="utf-8"))
            if duplicates := statements.keys() & parsed.keys():
                raise ValueError(f"statements in two files: {sorted(duplicates)}")
            statements.update(parsed)
    return statements


@cache
def statement(name: str) -> LiteralString:
    """Return a statement by its name.

    Files of the package are as literal as code.
    """
    return _load()[name]


def list_statements() -> list[str]:
    """Return the names of all statements."""
    return sorted(_load())


@cache
def list_used_names() -> frozenset[str]:
    """Return the tables and functions of the schema that the statements use."""
    return frozenset(name for text in _load().values() for name in _OURS.findall(text))
