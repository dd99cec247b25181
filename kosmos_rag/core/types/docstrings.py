"""Docstrings of fields as descriptions in JSON Schema.

This module does not import pydantic: the processes that parse do without it.
"""

import ast
import inspect
import textwrap
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

    Python keeps them in the source alone; where that is missing there are none.
    """
    try:
        source = inspect.getsource(kind)
    except OSError:
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
