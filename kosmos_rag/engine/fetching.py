"""Fetch files over HTTP under the limits of `ingestion.urls`, for wings."""

from kosmos_rag.ingestion.sources.fetching import Fetcher, check_url

__all__ = ["Fetcher", "check_url"]
