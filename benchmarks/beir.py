"""Evaluation sets in the BEIR layout: corpus.jsonl, queries.jsonl, qrels/test.tsv."""

from dataclasses import dataclass
from pathlib import Path

from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.offline import load_beir


@dataclass(frozen=True, kw_only=True)
class EvaluationSet:
    """Documents, questions, and which document answers which question how well."""

    name: str
    documents: dict[str, tuple[str, str]]
    """Title, and title and text as one, by id; documents without either are left out."""
    queries: dict[str, str]
    """Only those with a judgement."""
    qrels: dict[str, dict[str, int]]


def load(folder: Path) -> EvaluationSet:
    """Read a set. Exits with a clear word where the folder does not hold one."""
    try:
        beir = load_beir(folder)
        documents = {document.source: (document.title or "", document.data.decode()) for document in beir.documents()}
    except RequestError as error:
        raise SystemExit(str(error)) from error
    questions = beir.questions.questions
    return EvaluationSet(
        name=folder.name,
        documents=documents,
        queries={question.id: question.text for question in questions},
        qrels={question.id: dict(question.documents) for question in questions},
    )
