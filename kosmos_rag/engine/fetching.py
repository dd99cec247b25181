"""Fetch and send over HTTP with allowed hosts and limits, for wings."""

from kosmos_rag.ingestion.sources.fetching import Fetcher, Receipt, check_url, require_allowed_host

__all__ = ["Fetcher", "Receipt", "check_url", "require_allowed_host"]
