"""Create the source that a spec of a job or file describes."""

from collections.abc import Callable, Mapping
from typing import Any

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import RequestError
from kosmos_rag.ingestion.sources.folder import FolderSource, FolderSpec
from kosmos_rag.ingestion.sources.git import GitSource, GitSpec
from kosmos_rag.ingestion.sources.json_lines import JsonLinesSource, JsonLinesSpec
from kosmos_rag.ingestion.sources.listing import Source
from kosmos_rag.ingestion.sources.rclone import RcloneSource, RcloneSpec
from kosmos_rag.ingestion.sources.s3 import S3Source, S3Spec
from kosmos_rag.ingestion.sources.site import SiteSource
from kosmos_rag.ingestion.sources.site_crawl import SiteSpec
from kosmos_rag.ingestion.sources.spec import DocumentOptions, validate_spec
from kosmos_rag.ingestion.sources.sql import SqlSource, SqlSpec
from kosmos_rag.ingestion.sources.urls import UrlsSource, UrlsSpec

KINDS: dict[str, tuple[type[DocumentOptions], Callable[[Any, IngestionSettings], Source]]] = {
    "folder": (FolderSpec, FolderSource),
    "git": (GitSpec, GitSource),
    "json_lines": (JsonLinesSpec, JsonLinesSource),
    "rclone": (RcloneSpec, RcloneSource),
    "s3": (S3Spec, S3Source),
    "site": (SiteSpec, SiteSource),
    "sql": (SqlSpec, SqlSource),
    "urls": (UrlsSpec, UrlsSource),
}
"""Spec and source classes by kind."""


def create_source(spec: Mapping[str, Any], settings: IngestionSettings) -> Source:
    """Create the source that a spec describes.

    docs/sources.md lists the keys of each kind. Nothing is read yet.

    Raises:
        RequestError: The spec is invalid.
        ConfigError: An extra or an environment variable of the source is missing.
    """
    kind = spec.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise RequestError(one_line(f"source of kind {show(kind)}: kind must be one of {', '.join(KINDS)}"))
    model, source = KINDS[kind]
    return source(validate_spec(model, kind, spec), settings)
