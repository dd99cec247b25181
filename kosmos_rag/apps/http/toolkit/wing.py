"""What a wing adds to the HTTP service and the console."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter

from kosmos_rag.apps.http.toolkit.errors import ErrorFormat


@dataclass(frozen=True, kw_only=True, slots=True)
class PageLink:
    """A page of the console in its navigation."""

    path: str
    title: str
    scope: str
    """The scope that its readers need."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpWing:
    """What a wing adds to the HTTP service and the console."""

    routers: Sequence[APIRouter]
    examples: Mapping[str, Any] = field(default_factory=dict)
    """Examples of the OpenAPI document by name of the schema."""
    statuses: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Error statuses by path, where they do not follow from credentials, parameters and bodies."""
    error_format: ErrorFormat | None = None
    uploads: Sequence[str] = ()
    """Paths whose bodies may be as large as `ingestion.max_file_mb`."""
    templates: str | None = None
    """The package whose folder `templates` has the pages."""
    links: Sequence[PageLink] = ()
