"""The check of a source, for processes that have no tenant yet."""

from kosmos_rag.ingestion.source_check import SourceCheck, check_source

__all__ = ["SourceCheck", "check_source"]
