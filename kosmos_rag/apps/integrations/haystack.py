"""A retriever for Haystack: `pip install 'kosmos-rag[haystack]'`."""

from typing import Any, NoReturn

from kosmos_rag.apps.integrations.metadata import metadata_of
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.types import Filter
from kosmos_rag.engine.tenant import Tenant

try:
    from haystack import Document, component
except ImportError as error:
    raise ConfigError("the adapter needs haystack-ai: pip install 'kosmos-rag[haystack]'") from error

_LIVE = "KosmosRetriever holds an open engine, which no YAML can hold; make it in code and add it to the pipeline there"


@component
class KosmosRetriever:
    """Passages that a scope's reader may read, best first."""

    def __init__(self, scope: Tenant, *, k: int | None = None, filter: Filter | None = None) -> None:  # noqa: A002
        """`k` passages, as many as configured where it is None, of documents that the filter lets pass."""
        self._scope = scope
        self._k = k
        self._filter = filter

    @component.output_types(documents=list[Document])
    def run(self, query: str, k: int | None = None) -> dict[str, list[Document]]:
        """Return the passages for a query as `documents`. Raises as `Tenant.search` does."""
        found = self._scope.search(query, self._k if k is None else k, self._filter)
        return {
            "documents": [
                Document(id=str(hit.chunk_id), content=hit.text, meta=metadata_of(hit), score=hit.score)
                for hit in found.hits
            ]
        }

    def to_dict(self) -> NoReturn:
        """Raise ConfigError: there is nothing that a retriever could be made again from."""
        raise ConfigError(_LIVE)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> NoReturn:
        """Raise ConfigError, as `to_dict`."""
        del data
        raise ConfigError(_LIVE)
