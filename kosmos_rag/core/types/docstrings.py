"""Docstrings of fields as descriptions in JSON Schema.

This module does not import pydantic: the processes that parse do without it.
"""

import inspect
import linecache
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema


class Described:
    """A record whose JSON Schema has the docstrings of its fields."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: "CoreSchema", handler: "GetJsonSchemaHandler") -> dict[str, Any]:
        """Return the JSON Schema, each member with the docstring of its field.

        Pydantic can do so too, but then parses the source for each adapter: 10 ms a record at the start of a process.
        """
        schema = handler(core)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docstrings(cls).items():
            # With `Field(alias=…)` the member has another name than the field.
            marks = getattr(cls.__annotations__[name], "__metadata__", ())
            member = next((mark.alias for mark in marks if getattr(mark, "alias", None)), name)
            if member in properties:
                properties[member]["description"] = text
        return schema


def field_docstrings(kind: type) -> dict[str, str]:
    """Return the docstrings of a class's fields by name.

    Python keeps them in the source alone; where that is missing there are none. The source is read by tokens: Python
    before 3.11.8 fails where two threads build syntax trees at once, and a traceback in a log needs one.
    """
    lines = linecache.getlines(sys.modules[kind.__module__].__file__ or "")
    first = next((number for number, line in enumerate(lines) if re.match(rf"class {kind.__name__}\b", line)), None)
    if first is None:
        return {}
    return {
        field[0].string: inspect.cleandoc(text[0].string.removeprefix('"""').removesuffix('"""'))
        for field, text in pairwise(_read_statements(lines[first:]))
        if [token.type for token in field[:2]] == [tokenize.NAME, tokenize.OP]
        and field[1].string == ":"
        and [token.type for token in text] == [tokenize.STRING]
    }


def _read_statements(lines: Sequence[str]) -> Iterator[list[tokenize.TokenInfo]]:
    """Yield the tokens of each statement of the class that the lines begin with."""
    statement: list[tokenize.TokenInfo] = []
    depth = 0
    for token in tokenize.generate_tokens(iter(lines).__next__):
        if token.type in {tokenize.INDENT, tokenize.DEDENT}:
            depth += 1 if token.type == tokenize.INDENT else -1
            if depth == 0:
                return
        elif token.type == tokenize.NEWLINE:
            if depth == 1:
                yield statement
            statement = []
        elif token.type not in {tokenize.NL, tokenize.COMMENT}:
            statement.append(token)
