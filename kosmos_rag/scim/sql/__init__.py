"""The SQL statements of SCIM by name."""

from functools import cache

from kosmos_rag.core.statements import Statements

statement = cache(Statements(__package__).get)
"""Return a statement by its name."""
