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

_NOT_SERIALISABLE = "a KosmosRetriever has an open engine and cannot be serialised; create it in code"


@component
class KosmosRetriever:
    """Retrieves the passages that the tenant's reader may see, best first."""

    def __init__(self, tenant: Tenant, *, k: int | None = None, filter: Filter | None = None) -> None:  # noqa: A002
        """Create a retriever.

        Args:
            tenant: an open tenant.
            k: number of passages; None for the configured number.
            filter: search only documents that match.
        """
        self._tenant = tenant
        self._k = k
        self._filter = filter

    @component.output_types(documents=list[Document])
    def run(self, query: str, k: int | None = None) -> dict[str, list[Document]]:
        """Return the passages for a query as `documents`. Raises as `Tenant.search` does."""
        result = self._tenant.search(query, self._k if k is None else k, self._filter)
        return {
            "documents": [
                Document(id=str(hit.chunk_id), content=hit.text, meta=metadata_of(hit), score=hit.score)
                for hit in result.hits
            ]
        }

    def to_dict(self) -> NoReturn:
        """Raise ConfigError: an open engine cannot be serialised."""
        raise ConfigError(_NOT_SERIALISABLE)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> NoReturn:
        """Raise ConfigError, as `to_dict`."""
        del data
        raise ConfigError(_NOT_SERIALISABLE)
