"""Create the source that a spec of a job or file describes."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.ingestion.sources.confluence import ConfluenceSource, ConfluenceSpec
from kosmos_rag.ingestion.sources.folder import FolderSource, FolderSpec
from kosmos_rag.ingestion.sources.git import GitSource, GitSpec
from kosmos_rag.ingestion.sources.imap import ImapSource, ImapSpec
from kosmos_rag.ingestion.sources.jira import JiraSource, JiraSpec
from kosmos_rag.ingestion.sources.json_lines import JsonLinesSource, JsonLinesSpec
from kosmos_rag.ingestion.sources.listing import Source
from kosmos_rag.ingestion.sources.rclone import RcloneSource, RcloneSpec
from kosmos_rag.ingestion.sources.s3 import S3Source, S3Spec
from kosmos_rag.ingestion.sources.site import SiteSource
from kosmos_rag.ingestion.sources.site_crawl import SiteSpec
from kosmos_rag.ingestion.sources.spec import DocumentOptions, validate_spec
from kosmos_rag.ingestion.sources.sql import SqlSource, SqlSpec
from kosmos_rag.ingestion.sources.urls import UrlsSource, UrlsSpec

Kind = tuple[type[DocumentOptions], Callable[[Any, IngestionSettings], Source]]
"""Spec and source class of a kind."""

KINDS: dict[str, Kind] = {
    "confluence": (ConfluenceSpec, ConfluenceSource),
    "folder": (FolderSpec, FolderSource),
    "git": (GitSpec, GitSource),
    "imap": (ImapSpec, ImapSource),
    "jira": (JiraSpec, JiraSource),
    "json_lines": (JsonLinesSpec, JsonLinesSource),
    "rclone": (RcloneSpec, RcloneSource),
    "s3": (S3Spec, S3Source),
    "site": (SiteSpec, SiteSource),
    "sql": (SqlSpec, SqlSource),
    "urls": (UrlsSpec, UrlsSource),
}
"""The kinds of the package. A module of `ingestion.source_modules` adds its own by a mapping of that form, SOURCES."""


def create_source(spec: Mapping[str, Any], settings: IngestionSettings) -> Source:
    """Create the source that a spec describes.

    docs/sources.md lists the keys of each kind. Nothing is read yet.

    Raises:
        RequestError: The spec is invalid.
        ConfigError: An extra, a program, a module or an environment variable of the source is missing.
    """
    kind, kinds = spec.get("kind"), KINDS
    if settings.source_modules and not (isinstance(kind, str) and kind in kinds):
        kinds = {**_load_kinds(settings.source_modules), **KINDS}
    if not isinstance(kind, str) or kind not in kinds:
        raise RequestError(one_line(f"source of kind {show(kind)}: kind must be one of {', '.join(kinds)}"))
    model, source = kinds[kind]
    return source(validate_spec(model, kind, spec), settings)


def _load_kinds(modules: Sequence[str]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for name in modules:
        try:
            kinds.update(import_module(name).SOURCES)
        except (ImportError, AttributeError) as error:
            reason = f"which has no SOURCES that can be imported: {one_line(str(error))}"
            raise ConfigError(f"ingestion.source_modules names {name}, {reason}") from error
    return kinds
