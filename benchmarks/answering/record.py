"""Contexts of questions, each with and without the document that answers it."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.answering.sets import AnswerQuestion, AnswerSet
from kosmos_rag import Context, Engine, Filter


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedPair:
    """A question with its two contexts: the second one cannot answer it, in the same words."""

    question: AnswerQuestion
    context: Context | None
    """None for a question that no document answers."""
    without: Context


def record_contexts(engine: Engine, answer_set: AnswerSet) -> Iterator[AskedPair]:
    """Ingest a set and ask its questions."""
    tenant = engine.tenant(answer_set.name)
    report = tenant.ingest(answer_set.documents)
    if report.failed:
        raise SystemExit(f"{answer_set.name}: {report.failed[0].message}")
    for question in answer_set.questions:
        sources = list(question.sources)
        document, others = Filter(where={"source": {"$in": sources}}), Filter(where={"source": {"$nin": sources}})
        yield AskedPair(
            question=question,
            context=tenant.context(question.text, filter=document if question.within else None) if sources else None,
            without=tenant.context(question.text, filter=others if sources else None),
        )
