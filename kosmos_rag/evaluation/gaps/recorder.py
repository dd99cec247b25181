"""Record questions that find nothing, as they are delivered."""

import json
import logging
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from kosmos_rag.core.errors import ConfigError, DatabaseError
from kosmos_rag.core.types import EVALUATOR, Answer, Context, Filter, SearchResult
from kosmos_rag.engine.query_hooks import DeliveredResult, HookContext
from kosmos_rag.evaluation.gaps.records import UnansweredReason
from kosmos_rag.evaluation.gaps.store import MAX_CHARS, put_unanswered
from kosmos_rag.evaluation.metrics import UNANSWERED_QUESTIONS
from kosmos_rag.evaluation.settings import GapSettings

log = logging.getLogger(__name__)

_DROPPED = "dropped"


class UnansweredRecorder:
    """Stores questions without hits and refused questions. Thread-safe."""

    def __init__(self, context: HookContext) -> None:
        self._context = context
        self._settings = context.settings.section(GapSettings)
        self._lock = threading.Lock()
        self._logged: set[type[Exception]] = set()

    def observe(self, delivered: DeliveredResult) -> Callable[[], None] | None:
        """Return the task that stores the question; None where there is nothing to store.

        Not stored are: questions of evaluations and of administrators who look as a reader; texts that the audit policy
        excludes; questions with a filter, which may exclude the answer; results of a search that was incomplete.
        """
        reader, result = delivered.reader, delivered.result
        reason = _find_reason(delivered)
        if reason is None or not delivered.keeps_questions:
            return None
        if reader.subject == EVALUATOR or reader.is_watched or delivered.filter != Filter():
            return None
        search = _find_search(result)
        question = " ".join(search.question.split())
        if search.degraded_stages or not 0 < len(question) <= MAX_CHARS:
            return None
        return partial(self._write, delivered, question, reason, datetime.now(UTC))

    def count_dropped(self) -> None:
        """Count a question that is not stored."""
        self._context.telemetry.record(UNANSWERED_QUESTIONS, 1.0, _DROPPED)

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
        try:
            with self._context.write(reader.tenant) as connection:
                is_stored = put_unanswered(connection, values, max_questions=self._settings.max_questions)
            self._context.telemetry.record(UNANSWERED_QUESTIONS, 1.0, str(reason) if is_stored else _DROPPED)
        except (ConfigError, DatabaseError) as error:
            self.count_dropped()
            self._log_once(error)

    def _log_once(self, error: Exception) -> None:
        """Log the first error of each type: there may be one for each question."""
        with self._lock:
            if type(error) in self._logged:
                return
            self._logged.add(type(error))
        log.warning(
            "unanswered questions are not stored: %s", type(error).__name__, extra={"action": "unanswered_dropped"}
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
