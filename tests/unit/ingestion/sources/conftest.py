"""Settings for sources, and a source from a spec as a job would hold it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kosmos_rag.core.config import IngestionSettings, UrlSettings
from kosmos_rag.ingestion.sources.listing import Source
from kosmos_rag.ingestion.sources.registry import create_source

Opener = Callable[..., Source]


@pytest.fixture
def ingestion() -> IngestionSettings:
    """One megabyte a document, and a local server that may be asked."""
    urls = UrlSettings(allowed_hosts=("127.0.0.1", "*.example.org", "localhost"), allow_private=True, timeout_s=5.0)
    return IngestionSettings(max_file_mb=1, urls=urls)


@pytest.fixture
def opened(ingestion: IngestionSettings) -> Opener:
    """Opens a spec that went through JSON."""

    def opened(**spec: Any) -> Source:
        return create_source(json.loads(json.dumps(spec, default=str)), ingestion)

    return opened
