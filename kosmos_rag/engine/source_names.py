"""The names that documents of files get."""

from kosmos_rag.ingestion.sources.names import default_name

__all__ = ["default_name"]
