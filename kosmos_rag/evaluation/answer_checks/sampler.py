"""Sample answers as they are delivered."""

import logging
import random
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from kosmos_rag.core.errors import ConfigError, DatabaseError
from kosmos_rag.core.types import EVALUATOR, Answer, hash_text
from kosmos_rag.engine.query_hooks import DeliveredResult, HookContext
from kosmos_rag.evaluation.answer_checks.records import CitedAnswer
from kosmos_rag.evaluation.answer_checks.store import insert_sample
from kosmos_rag.evaluation.metrics import ANSWER_SAMPLES
from kosmos_rag.evaluation.settings import AnswerCheckSettings

log = logging.getLogger(__name__)

_WRITTEN, _DROPPED = "written", "dropped"


class AnswerSampler:
    """Stores a share of answers and refusals, without the question. Thread-safe."""

    def __init__(self, context: HookContext) -> None:
        self._context = context
        self._settings = context.settings.section(AnswerCheckSettings)
        self._lock = threading.Lock()
        self._logged: set[type[Exception]] = set()

    def observe(self, delivered: DeliveredResult) -> Callable[[], None] | None:
        """Return the task that stores the answer; None where it is not sampled.

        Not sampled are: answers of evaluations and of administrators who look as a reader; those whose texts the audit
        policy excludes.
        """
        reader, answer = delivered.reader, delivered.result
        if not isinstance(answer, Answer) or not delivered.keeps_questions:
            return None
        if reader.subject == EVALUATOR or reader.is_watched:
            return None
        if random.random() >= self._settings.share:  # noqa: S311 - a sample needs no secret
            return None
        return partial(self._write, delivered, answer, datetime.now(UTC))

    def count_dropped(self) -> None:
        """Count an answer that is not stored."""
        self._context.telemetry.record(ANSWER_SAMPLES, 1.0, _DROPPED)

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
        try:
            with self._context.write(reader.tenant) as connection:
                is_stored = insert_sample(connection, values, cited, max_answers=self._settings.max_answers)
            self._context.telemetry.record(ANSWER_SAMPLES, 1.0, _WRITTEN if is_stored else _DROPPED)
        except (ConfigError, DatabaseError) as error:
            self.count_dropped()
            self._log_once(error)

    def _log_once(self, error: Exception) -> None:
        """Log the first error of each type: there may be one for each answer."""
        with self._lock:
            if type(error) in self._logged:
                return
            self._logged.add(type(error))
        log.warning("answers are not sampled: %s", type(error).__name__, extra={"action": "answer_sample_dropped"})


def _collect_cited(answer: Answer, citation_format: str) -> CitedAnswer:
    if answer.report is None:
        return CitedAnswer(text=None, quotes=answer.sentences, passages=())
    markers = {marker for sentence in answer.report.sentences for marker in sentence.markers}
    passages = tuple(passage for passage in answer.context.passages if passage.citation.index in markers)
    return CitedAnswer(text=answer.text, quotes=answer.sentences, passages=passages, citation_format=citation_format)
