"""Test collections in the BEIR layout: corpus.jsonl, queries.jsonl, qrels/test.tsv.

Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models" (2021).
"""

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import RequestError, first_line
from kosmos_rag.core.types import IngestReport, SourceDocument
from kosmos_rag.evaluation.offline.questions import Question, QuestionSet, require_unique_ids

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
_SLUG = 40
"""Characters of a set's name in that of its tenant, which may have 63."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BeirSet:
    """A corpus with judged questions."""

    folder: Path
    questions: QuestionSet

    def documents(self) -> Iterator[SourceDocument]:
        """Read the documents, title and text joined; skip empty ones. Raises RequestError."""
        for entry in _entries(self.folder / CORPUS):
            title = str(entry.get("title") or "").strip()
            text = f"{title}\n\n{entry.get('text') or ''}".strip()
            if text:
                yield SourceDocument(source=str(entry["_id"]), title=title or None, data=text.encode())


def load_beir(folder: Path, *, split: str = "test") -> BeirSet:
    """Read the judged questions of a set; documents are read on demand.

    Raises RequestError if the folder is not in the BEIR layout, or a line is malformed.
    """
    judgements = folder / "qrels" / f"{split}.tsv"
    if missing := [str(file) for file in (folder / CORPUS, folder / QUERIES, judgements) if not file.is_file()]:
        raise RequestError(
            f"there is no set in the BEIR layout in {folder}: missing {', '.join(missing)}; "
            "name its folder or URL, or a question file"
        )
    grades_by_question = _judgements(judgements)
    questions = tuple(
        Question(id=str(entry["_id"]), text=_query_text(entry, folder), documents=grades_by_question[str(entry["_id"])])
        for entry in _entries(folder / QUERIES)
        if str(entry["_id"]) in grades_by_question
    )
    require_unique_ids(questions, folder / QUERIES)
    if not questions:
        raise RequestError(f"no question of {folder / QUERIES} is judged in {judgements}; are they of one set?")
    name = folder.resolve().name if split == "test" else f"{folder.resolve().name}-{split}"
    return BeirSet(folder=folder, questions=QuestionSet(name=name, questions=questions))


def _judgements(path: Path) -> dict[str, dict[str, int]]:
    grades_by_question: dict[str, dict[str, int]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        try:
            for row in csv.DictReader(file, delimiter="\t"):
                grades_by_question.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise RequestError(
                f"{path} is not judgements: it needs a first line `query-id`, `corpus-id`, `score`, by tabs ({error!r})"
            ) from error
    return grades_by_question


def _query_text(entry: Mapping[str, Any], folder: Path) -> str:
    text = entry.get("text")
    if not isinstance(text, str) or not text.strip():
        raise RequestError(f"the question {entry['_id']} of {folder / QUERIES} has no `text`; write the question")
    return text


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _entry(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} cannot be read: {first_line(error)}; give it as UTF-8 text") from error


def _entry(line: str, position: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{position} is not JSON: {first_line(error)}; correct it") from error
    if not isinstance(entry, dict) or "_id" not in entry:
        raise RequestError(f"{position} has no `_id`; give each its own")
    return entry


class WritableTenant(Protocol):
    """A tenant whose documents can be written: a Tenant is one."""

    def ingest(
        self, items: Iterable[SourceDocument], *, on_progress: Callable[[int, int, str], None] | None = None
    ) -> IngestReport:
        """Ingest documents; skip unchanged ones."""
        ...

    def sources(self) -> list[str]:
        """List the sources of all documents."""
        ...

    def delete(self, sources: Iterable[str]) -> int:
        """Delete documents by source."""
        ...


def sync_corpus(
    tenant: WritableTenant, beir: BeirSet, on_progress: Callable[[int, int, str], None] | None = None
) -> None:
    """Make the corpus of a set the documents of a tenant.

    Skip unchanged ones.

    Args:
        tenant: The tenant; its other documents are deleted.
        on_progress: Called with documents done, documents in all, and the current step.

    Raises RequestError if a document cannot be ingested.
    """
    sources: set[str] = set()

    def documents() -> Iterator[SourceDocument]:
        for document in beir.documents():
            sources.add(document.source)
            yield document

    report = tenant.ingest(documents(), on_progress=on_progress)
    if report.failed:
        first = report.failed[0]
        raise RequestError(
            f"{len(report.failed)} documents of the set were not ingested, the first {first.source!r}: {first.message}"
        )
    if obsolete := sorted(set(tenant.sources()) - sources):
        tenant.delete(obsolete)


def derive_tenant_name(questions: QuestionSet, settings: Settings) -> str:
    """Return the name of the tenant of a set.

    It depends on chunking, embedding and language.
    """
    slug = re.sub(r"[^a-z0-9_-]+", "-", questions.name.lower()).strip("-")[:_SLUG]
    chunking, embedding = settings.rag.chunking.model_dump_json(), settings.rag.embedding.model_dump_json()
    fingerprint = f"{chunking} {embedding} {settings.ingestion.language}"
    return f"eval-{slug or 'set'}-{hashlib.sha256(fingerprint.encode()).hexdigest()[:8]}"
