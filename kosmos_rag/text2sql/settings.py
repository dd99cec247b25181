"""The section of the configuration for queries on described databases."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from kosmos_rag.core.section import Count, Section

VariantChoice = Literal["open", "sum", "base"]
"""What happens with rows per variant: `sum` adds them up, `base` leaves them out, `open` decides nothing."""

_KEY = re.compile(r"[^/\s]+/[^/\s]+/[^/]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _check_databases(databases: Mapping[str, str]) -> Mapping[str, str]:
    for key, variable in databases.items():
        if not _KEY.fullmatch(key):
            raise ValueError("its keys must be tenant/collection/database: acme/schema/shop")
        if not _VARIABLE.fullmatch(variable):
            raise ValueError("its values must be names of environment variables that hold a URL")
    return databases


class Text2SqlSettings(Section):
    """Which described databases may be queried, and the limits of a query."""

    databases: Annotated[Mapping[str, str], AfterValidator(_check_databases)] = Field(
        default={},
        description="Environment variable with the URL of a role that only reads, by tenant/collection/database; "
        "without an entry nothing is run.",
    )
    variants: VariantChoice = Field(
        default="open",
        description="Rows for variants and for the whole: sum adds up rows of variants, base leaves them out, open "
        "lets the language model decide.",
    )
    timeout_ms: Count = Field(default=5_000, description="Time limit of a query in milliseconds.")
    max_rows: Count = Field(default=1_000, description="Maximum number of rows of a result.")
    max_bytes: Count = Field(default=1_000_000, description="Maximum size of the rows of a result, as JSON.")
    max_cost: Count = Field(
        default=10_000_000,
        description="Maximum cost that PostgreSQL expects of a query, in the units of its planner; a scan of ten "
        "million rows has about 200000.",
    )
