"""Checks and scripts of sources, for processes that have no tenant yet."""

from collections.abc import Mapping
from typing import Any

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import show
from kosmos_rag.core.errors import RequestError
from kosmos_rag.ingestion.source_check import SourceCheck, check_source
from kosmos_rag.ingestion.sources.spec import validate_spec
from kosmos_rag.ingestion.sources.sql import SqlSource, SqlSpec

__all__ = ["SourceCheck", "check_source", "create_change_script"]


def create_change_script(spec: Mapping[str, Any], settings: IngestionSettings) -> str:
    """Return the SQL that records the changes of a source, for the owner of its database.

    Args:
        spec: The source, as docs/sources.md describes it.
        settings: Limits and allowed hosts.

    Raises:
        RequestError: The source is of another kind than sql.
        ConfigError: It has no changes, or its variable contains no usable URL of PostgreSQL.
    """
    if spec.get("kind") != "sql":
        raise RequestError(
            f"a source of kind {show(spec.get('kind'))} has no script; name one of kind sql with --source"
        )
    return SqlSource(validate_spec(SqlSpec, "sql", spec), settings).open_outbox().create_script()
