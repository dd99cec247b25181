"""Sample answers as they are delivered."""

import logging
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from kosmos_rag.core.types import Answer, hash_text
from kosmos_rag.engine.query_hooks import DeliveredResult, HookContext
from kosmos_rag.evaluation.answer_checks.records import CitedAnswer
from kosmos_rag.evaluation.answer_checks.store import insert_sample
from kosmos_rag.evaluation.metrics import ANSWER_SAMPLES
from kosmos_rag.evaluation.settings import AnswerCheckSettings
from kosmos_rag.evaluation.storing_observer import StoringObserver

log = logging.getLogger(__name__)

_WRITTEN = "written"


class AnswerSampler(StoringObserver):
    """Stores a share of answers and refusals, without the question. Thread-safe."""

    metric = ANSWER_SAMPLES

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._settings = context.settings.section(AnswerCheckSettings)

    def observe(self, delivered: DeliveredResult) -> Callable[[], None] | None:
        """Return the task that stores the answer; None where it is not sampled.

        Not sampled are: answers of evaluations and of administrators who look as a reader; those whose texts the audit
        policy excludes.
        """
        answer = delivered.result
        if not isinstance(answer, Answer) or not self.may_store(delivered):
            return None
        if random.random() >= self._settings.share:  # noqa: S311 - a sample needs no secret
            return None
        return partial(self._write, delivered, answer, datetime.now(UTC))

    def log_failure(self, error: str) -> None:
        """Log that answers are not sampled."""
        log.warning("answers are not sampled: %s", error, extra={"action": "answer_sample_dropped"})

    def _write(self, delivered: DeliveredResult, answer: Answer, at: datetime) -> None:
        reader = delivered.reader
        cited = None if answer.refused else _collect_cited(answer, delivered.citation_format)
        values = {
            "tenant_id": reader.tenant.id,
            "id": uuid.uuid4(),
            "at": at,
            "collection": reader.collection,
            "subject": reader.subject,
            "principals": [] if cited is None else list(reader.principals),
            "retrieval_id": answer.context.retrieval.id,
            "question_sha256": hash_text(" ".join(answer.question.split())),
            # A generated answer may use a passage that it does not cite.
            "sources": [] if cited is None else sorted({each.citation.source for each in answer.context.passages}),
        }
        self.store(
            delivered,
            lambda connection: insert_sample(connection, values, cited, max_answers=self._settings.max_answers),
            _WRITTEN,
        )


def _collect_cited(answer: Answer, citation_format: str) -> CitedAnswer:
    if answer.report is None:
        return CitedAnswer(text=None, quotes=answer.sentences, passages=())
    markers = {marker for sentence in answer.report.sentences for marker in sentence.markers}
    passages = tuple(passage for passage in answer.context.passages if passage.citation.index in markers)
    return CitedAnswer(text=answer.text, quotes=answer.sentences, passages=passages, citation_format=citation_format)
