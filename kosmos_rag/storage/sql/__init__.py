"""The SQL statements of the kernel by name."""

import re
from functools import cache

from kosmos_rag.core.statements import Statements

_NAME_IN_SCHEMA = re.compile(r"\bkosmos\.(\w+)")
_STATEMENTS = Statements(__package__)

statement = cache(_STATEMENTS.get)
"""Return a statement by its name."""


@cache
def list_used_names() -> frozenset[str]:
    """Return the tables and functions of the schema that the statements use."""
    return frozenset(name for text in _STATEMENTS.texts.values() for name in _NAME_IN_SCHEMA.findall(text))
