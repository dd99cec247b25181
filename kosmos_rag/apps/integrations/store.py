"""Store texts with ids in one collection, for adapters of other libraries.

The vectors of a collection are those of its model. A text is a document whose source is its id; one longer than the
model's input has several chunks, and a search returns its best passage.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kosmos_rag.core.errors import ConfigError, IngestionError, RequestError
from kosmos_rag.core.types import EVERYONE, Filter, Passage, SourceDocument
from kosmos_rag.engine.tenant import Tenant

_PLAIN_TEXT = "text/plain"
_IDS = 1_000
"""Documents that one statement reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredText:
    """A text with its id and metadata, as it was given."""

    id: str
    text: str
    """The whole text; of a search result, the passage that was found."""
    metadata: Mapping[str, Any]
    score: float = math.nan
    """Of a search: of the reranker where it ran, the cosine where only vectors were compared, else of the fusion."""


class CollectionStore:
    """Writes, reads, deletes and finds texts of one collection. Thread-safe."""

    def __init__(self, tenant: Tenant, acl: Sequence[str] = (EVERYONE,)) -> None:
        """Create a store; raises ConfigError without a collection.

        Args: acl: Principals that may read what is written.
        """
        if tenant.collection is None:
            raise ConfigError(
                f"a store writes to one collection and the tenant {tenant.name} was opened for all; open it with "
                "engine.tenant(name, collection='notes')"
            )
        self.tenant = tenant
        self._acl = tuple(acl)

    def write(self, texts: Sequence[StoredText]) -> None:
        """Store texts; one with an existing id replaces it.

        Raises IngestionError with the ids that were not stored; the others are. Raises ModelError, DatabaseError.
        """
        report = self.tenant.ingest(
            SourceDocument(
                source=text.id,
                data=text.text.encode("utf-8", "replace"),
                metadata=text.metadata,
                acl=self._acl,
                media_type=_PLAIN_TEXT,
            )
            for text in texts
        )
        if report.failed:
            reasons = "; ".join(f"{failure.source}: {failure.message}" for failure in report.failed[:5])
            raise IngestionError(
                report.failed[0].code, f"{len(report.failed)} of {len(texts)} documents were not stored: {reasons}"
            )

    def delete(self, ids: Iterable[str]) -> int:
        """Delete exactly the texts with these ids; return how many there were."""
        return self.tenant.delete(ids)

    def read(self, ids: Sequence[str] | None = None, condition: Filter | None = None) -> list[StoredText]:
        """Return readable texts, in the order of the ids, else by id.

        Args:
            ids: Only these; None for all.
            condition: Only texts that match.
        """
        if ids is None:
            infos = self.tenant.documents(filter=condition)
        else:
            keys = self.tenant.document_ids(ids)
            parts = [
                self.tenant.documents(ids=keys[start : start + _IDS], filter=condition)
                for start in range(0, len(keys), _IDS)
            ]
            place = {key: number for number, key in enumerate(keys)}
            infos = sorted((info for part in parts for info in part), key=lambda info: place[info.id])
        texts = self.tenant.document_texts([info.id for info in infos])
        # One that was deleted between the two reads is left out.
        return [
            StoredText(id=info.source, text=texts[info.id], metadata=info.metadata)
            for info in infos
            if info.id in texts
        ]

    def search(
        self,
        question: str,
        k: int,
        *,
        condition: Filter | None = None,
        vector: Sequence[float] | None = None,
        mmr: float | None = None,
        semantic_weight: float | None = None,
        keyword_weight: float | None = None,
    ) -> list[StoredText]:
        """Return the best passage of each of the best texts.

        Args:
            question: The question; may be empty with a vector.
            k: Texts to return.
            condition: Only texts that match.
            vector: Embedding of the question; None to embed it.
            mmr: Weight of relevance in maximal marginal relevance.
            semantic_weight: Weight of the dense retriever; None for the setting.
            keyword_weight: Weight of the lexical retriever; None for the setting.
        """
        if k < 1:
            return []
        result = self.tenant.search(
            question,
            k,
            condition,
            vector=vector,
            mmr=mmr,
            semantic_weight=semantic_weight,
            keyword_weight=keyword_weight,
            group_by="document",
            group_size=1,
        )
        is_dense = keyword_weight == 0 or not question.strip()
        return self._add_copies(result.hits, is_dense=is_dense)[:k]

    def _add_copies(self, hits: Sequence[Passage], *, is_dense: bool) -> list[StoredText]:
        """Return the hits as texts, each followed by its copies.

        A search shows equal passages as one; here each has an id of its own.
        """
        copies = {place.document_id for hit in hits for place in hit.also_in} - {hit.document_id for hit in hits}
        infos = {info.id: info for info in self.tenant.documents(ids=copies)} if copies else {}
        texts: dict[str, StoredText] = {}
        for hit in hits:
            score = _score(hit, is_dense=is_dense)
            texts.setdefault(hit.source, StoredText(id=hit.source, text=hit.text, metadata=hit.metadata, score=score))
            for place in hit.also_in:
                if (info := infos.get(place.document_id)) is not None:
                    texts.setdefault(
                        info.source, StoredText(id=info.source, text=hit.text, metadata=info.metadata, score=score)
                    )
        return list(texts.values())

    def check_vectors(self, vectors: Iterable[Sequence[float] | None]) -> None:
        """Raise RequestError for a vector that another model made.

        Documents are embedded by the model of the collection: vectors that come with them are checked and not stored.
        """
        expected = self.tenant.dimensions
        for vector in vectors:
            if vector is not None and len(vector) != expected:
                raise RequestError(
                    f"a document came with a vector of {len(vector)} dimensions, and the model of this collection has "
                    f"{expected}; use the embeddings of this module, or give documents without vectors"
                )


def metadata_filter(conditions: Filter | Mapping[str, Any] | None) -> Filter | None:
    """Return a filter on documents from conditions on keys of metadata.

    `{"year": {"$gte": 2024}}` is `Filter(where={"metadata.year": {"$gte": 2024}})`.
    """
    if conditions is None or isinstance(conditions, Filter):
        return conditions
    return Filter(where=_qualify(conditions)) if conditions else None


def _qualify(conditions: Any) -> Any:
    if isinstance(conditions, list | tuple):
        return [_qualify(condition) for condition in conditions]
    if not isinstance(conditions, Mapping):
        return conditions
    return {
        (key if str(key).startswith("$") else f"metadata.{key}"): (
            _qualify(value) if key in ("$and", "$or", "$not") else value
        )
        for key, value in conditions.items()
    }


def _score(hit: Passage, *, is_dense: bool) -> float:
    if hit.rerank_score is not None:
        return hit.rerank_score
    return hit.dense_score if is_dense and hit.dense_score is not None else hit.score
