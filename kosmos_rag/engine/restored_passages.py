"""Look whether a restored database finds its passages, and shows them to their readers alone."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseError
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.storage.sql import statement

_CHUNKS = 5
"""Chunks of a tenant whose words are asked for."""
_WORDS = 20
"""Words of a question: enough to name one passage, few enough for a fast search."""
_HITS = 20
_STRANGER = "user:nobody-of-the-restored-database"


@dataclass(frozen=True, kw_only=True, slots=True)
class PassageCheck:
    """Questions that were made of stored passages, and how many of them find their document."""

    questions: int
    documents: int


@dataclass(frozen=True, slots=True)
class _Sample:
    document_id: uuid.UUID
    collection: str
    acl: list[str]
    question: str


def check_passages(settings: Settings, tenants: Sequence[str]) -> PassageCheck:
    """Search a restored database for the words of some passages, as readers and as strangers.

    It looks by words alone, so it loads no model. Copies of a passage, and a preset that hides it, are no fault: half
    of the questions have to find their document.

    Args:
        settings: Of the restored database.
        tenants: Names of the tenants to search in.

    Raises DatabaseError if a stranger or another tenant gets a passage, or if too few are found.
    """
    questions, documents = 0, 0
    reranking = settings.rag.reranking.model_copy(update={"enabled": False})
    rag = settings.rag.model_copy(update={"reranking": reranking})
    with Engine(settings.model_copy(update={"rag": rag})) as engine:
        for number, name in enumerate(tenants):
            for sample in _sample(engine, name):
                questions += 1
                documents += sample.document_id in _search(engine.tenant(name, principals=sample.acl), sample)
                _require_hidden(engine, name, tenants[number - 1], sample)
    if documents * 2 < questions:
        raise DatabaseError(
            f"{documents} of {questions} questions find the document whose words they were; "
            "look at `kosmos-rag index status`, and restore an older backup if its indexes are whole"
        )
    return PassageCheck(questions=questions, documents=documents)


def _require_hidden(engine: Engine, name: str, other: str, sample: _Sample) -> None:
    """Raise DatabaseError if a stranger or another tenant gets the passage."""
    if EVERYONE not in sample.acl:
        stranger = engine.tenant(name, principals=[EVERYONE, _STRANGER])
        if sample.document_id in _search(stranger, sample):
            raise DatabaseError(f"the tenant {name} shows document {sample.document_id} to readers that it is not for")
    if other != name and sample.document_id in _search(engine.tenant(other, principals=sample.acl), sample):
        raise DatabaseError(f"the tenant {other} gets document {sample.document_id} of the tenant {name}")


def _search(tenant: Tenant, sample: _Sample) -> set[uuid.UUID]:
    collection = tenant.with_collection(sample.collection)
    return {hit.document_id for hit in collection.search(sample.question, _HITS, semantic_weight=0).hits}


def _sample(engine: Engine, name: str) -> list[_Sample]:
    tenant = engine.tenant(name)
    with engine.database.worker.transaction(tenant.id, [EVERYONE]) as connection:
        rows = connection.execute(statement("sample_chunks"), {"tenant_id": tenant.id, "count": _CHUNKS}).fetchall()
    samples = []
    for document_id, collection, acl, text in rows:
        words = re.findall(r"\w+", text)[:_WORDS]
        if words:
            samples.append(_Sample(document_id, collection, acl, " ".join(words)))
    return samples
