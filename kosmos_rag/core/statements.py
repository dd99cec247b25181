"""Load the SQL statements of a package by name.

Each .sql file has statements after a line `-- name: …`; values are always bound. Python code contains no SQL.
"""

import re
from functools import cached_property
from importlib.resources import files
from typing import LiteralString

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


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


class Statements:
    """The statements of the .sql files of one package."""

    def __init__(self, package: str) -> None:
        self._package = package

    @cached_property
    def texts(self) -> dict[str, LiteralString]:
        """The statements by name.

        Files of the package are as literal as code.
        """
        statements: dict[str, LiteralString] = {}
        for file in sorted(files(self._package).iterdir(), key=lambda entry: entry.name):
            if file.name.endswith(".sql"):
                parsed = parse(file.read_text(encoding="utf-8"))
                if duplicates := statements.keys() & parsed.keys():
                    raise ValueError(f"statements in two files: {sorted(duplicates)}")
                statements.update(parsed)
        return statements

    def get(self, name: str) -> LiteralString:
        """Return a statement by its name."""
        return self.texts[name]
