"""What the observers that store delivered results have in common."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import psycopg

from kosmos_rag.core.errors import ConfigError, DatabaseError
from kosmos_rag.core.telemetry.metrics import Metric
from kosmos_rag.core.types import EVALUATOR
from kosmos_rag.engine.query_hooks import DeliveredResult, HookContext

_DROPPED = "dropped"


class StoringObserver(ABC):
    """Writes what it stores of a result, and counts it by outcome. Thread-safe."""

    metric: ClassVar[Metric]
    """What is stored, by outcome; `dropped` where it is not stored."""

    def __init__(self, context: HookContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._logged: set[type[Exception]] = set()

    def count_dropped(self) -> None:
        """Count a result that is not stored."""
        self._count(_DROPPED)

    @abstractmethod
    def log_failure(self, error: str) -> None:
        """Log that results are not stored, with the type of the error."""

    @staticmethod
    def may_store(delivered: DeliveredResult) -> bool:
        """Return whether the audit policy and the reader allow to store texts of a result.

        Evaluations and administrators who look as a reader do not count.
        """
        reader = delivered.reader
        return delivered.keeps_questions and reader.subject != EVALUATOR and not reader.is_watched

    def store(self, delivered: DeliveredResult, insert: Callable[[psycopg.Connection], bool], outcome: str) -> None:
        """Write a row in a transaction of its own, and count it.

        Args:
            insert: Writes the row; False where there is no room for it.
            outcome: Label of the metric for what was written.
        """
        try:
            with self._context.write(delivered.reader.tenant) as connection:
                is_stored = insert(connection)
            self._count(outcome if is_stored else _DROPPED)
        except (ConfigError, DatabaseError) as error:
            self.count_dropped()
            self._log_once(error)

    def _count(self, outcome: str) -> None:
        self._context.telemetry.record(self.metric, 1.0, outcome)

    def _log_once(self, error: Exception) -> None:
        """Log the first error of each type: there may be one for each result."""
        with self._lock:
            if type(error) in self._logged:
                return
            self._logged.add(type(error))
        self.log_failure(type(error).__name__)
