"""Record questions that find nothing, as they are delivered."""

import json
import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from kosmos_rag.core.types import Answer, Context, Filter, SearchResult
from kosmos_rag.engine.query_hooks import DeliveredResult, HookContext
from kosmos_rag.evaluation.gaps.records import UnansweredReason
from kosmos_rag.evaluation.gaps.store import MAX_CHARS, put_unanswered
from kosmos_rag.evaluation.metrics import UNANSWERED_QUESTIONS
from kosmos_rag.evaluation.settings import GapSettings
from kosmos_rag.evaluation.storing_observer import StoringObserver

log = logging.getLogger(__name__)


class UnansweredRecorder(StoringObserver):
    """Stores questions without hits and refused questions. Thread-safe."""

    metric = UNANSWERED_QUESTIONS

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._settings = context.settings.section(GapSettings)

    def observe(self, delivered: DeliveredResult) -> Callable[[], None] | None:
        """Return the task that stores the question; None where there is nothing to store.

        Not stored are: questions of evaluations and of administrators who look as a reader; texts that the audit policy
        excludes; questions with a filter, which may exclude the answer; results of a search that was incomplete.
        """
        reason = _find_reason(delivered)
        if reason is None or not self.may_store(delivered) or delivered.filter != Filter():
            return None
        search = _find_search(delivered.result)
        question = " ".join(search.question.split())
        if search.degraded_stages or not 0 < len(question) <= MAX_CHARS:
            return None
        return partial(self._write, delivered, question, reason, datetime.now(UTC))

    def log_failure(self, error: str) -> None:
        """Log that unanswered questions are not stored."""
        log.warning("unanswered questions are not stored: %s", error, extra={"action": "unanswered_dropped"})

    def _write(self, delivered: DeliveredResult, question: str, reason: UnansweredReason, at: datetime) -> None:
        reader = delivered.reader
        # One row for each reader and question: repeated questions need no more space.
        key = [reader.subject or sorted(reader.principals), reader.collection, question.casefold()]
        values = {
            "tenant_id": reader.tenant.id,
            "id": uuid.uuid5(reader.tenant.id, json.dumps(key)),
            "at": at,
            "collection": reader.collection,
            "subject": reader.subject,
            "principals": list(reader.principals),
            "question": question,
            "reason": reason,
        }
        self.store(
            delivered,
            lambda connection: put_unanswered(connection, values, max_questions=self._settings.max_questions),
            str(reason),
        )


def _find_reason(delivered: DeliveredResult) -> UnansweredReason | None:
    result = delivered.result
    if not _find_search(result).hits:
        return UnansweredReason.NONE
    if isinstance(result, Answer) and result.refused:
        return UnansweredReason.DECLINED if delivered.had_evidence else UnansweredReason.REFUSED
    return None


def _find_search(result: SearchResult | Context | Answer) -> SearchResult:
    if isinstance(result, SearchResult):
        return result
    return (result if isinstance(result, Context) else result.context).retrieval
