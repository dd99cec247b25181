"""An evaluation set, chunked and embedded once by our pipeline, for all systems."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ir_measures
import numpy as np
from ir_measures import MRR, R, nDCG

from benchmarks.beir import EvaluationSet
from benchmarks.peers.exchange import Corpus
from kosmos_rag import Settings, SourceDocument
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import DEFAULT_COLLECTION
from kosmos_rag.ingestion.chunking import build_chunker
from kosmos_rag.ingestion.document import (
    HEADER_TOKENS,
    ChunkedDocument,
    build_pipeline_key,
    document_id,
    process_document,
    version_id,
)
from kosmos_rag.storage.tenants import tenant

TENANT = tenant("bench")
MEASURES = [nDCG @ 10, R @ 10, MRR @ 10]


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedSet:
    """A set ready to be stored and asked."""

    evaluation: EvaluationSet
    documents: list[ChunkedDocument]
    corpus: Corpus
    document_of: Mapping[str, str]
    """The document of each chunk."""

    def quality(self, rankings: Mapping[str, Sequence[str]]) -> dict[str, float]:
        """Judge the chunks found for each question; a document's rank is that of its best chunk."""
        documents_by_key = {
            key: dict.fromkeys(self.document_of[chunk] for chunk in chunks) for key, chunks in rankings.items()
        }
        run = [
            ir_measures.ScoredDoc(key, document, -rank)
            for key, documents in documents_by_key.items()
            for rank, document in enumerate(documents)
        ]
        judged = {key: grades for key, grades in self.evaluation.qrels.items() if key in self.corpus.questions}
        qrels = [ir_measures.Qrel(key, document, grade) for key, g in judged.items() for document, grade in g.items()]
        figures = ir_measures.calc_aggregate(MEASURES, qrels, run)
        return {str(measure): round(figures[measure], 4) for measure in MEASURES}


def prepare(evaluation: EvaluationSet, settings: Settings, embedder: Embedder) -> PreparedSet:
    """Chunk and embed a set as ingestion would. Raises IngestionError, ModelUnavailable."""
    documents = _process_documents(evaluation, settings, embedder)
    texts = [text for document in documents for text in document.embedded]
    chunks = {
        # As publishing names them: questions are answered with these ids.
        str(uuid.uuid5(version_id(document), str(chunk.chunk_index))): document.source.source
        for document in documents
        for chunk in document.chunks
    }
    corpus = Corpus(
        ids=list(chunks),
        texts=texts,
        vectors=embedder.embed(texts),
        questions=evaluation.queries,
        question_vectors=np.stack([embedder.embed_query(question) for question in evaluation.queries.values()]),
    )
    return PreparedSet(evaluation=evaluation, documents=documents, corpus=corpus, document_of=chunks)


def _process_documents(evaluation: EvaluationSet, settings: Settings, embedder: Embedder) -> list[ChunkedDocument]:
    budget = embedder.max_tokens - HEADER_TOKENS
    chunker = build_chunker(settings.rag.chunking, embedder=embedder, max_tokens=budget)
    key, language = build_pipeline_key(settings, embedder.name), settings.ingestion.language
    return [
        process_document(
            SourceDocument(source=source, title=title or None, data=text.encode()),
            identity=document_id(TENANT.id, DEFAULT_COLLECTION, source),
            key=key,
            language=language,
            languages=[language],
            chunker=chunker,
            tokenizer=embedder.tokenizer,
            limits=settings.ingestion.parsing,
        )
        for source, (title, text) in evaluation.documents.items()
    ]
