"""Searches that a language model plans for one question."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import RequestError, reader_message
from kosmos_rag.core.protocols import LanguageModel
from kosmos_rag.retrieval.expansion.llm import plan_searches

S = TypeVar("S")

log = logging.getLogger(__name__)


class PlannedSearches(Generic[S]):
    """Runs the searches that a model plans for one question.

    Their number and their time are bounded. A model that fails costs the plan, and not the question.
    """

    def __init__(self, model: LanguageModel | None, settings: Settings) -> None:
        """Prepare the searches of one question.

        Raises RequestError without a language model.
        """
        if model is None:
            raise RequestError("effort high needs a language model that plans; set language_model.url, or ask with low")
        self._model = model
        self._expansion = settings.rag.expansion
        self.warnings: list[str] = []
        """Why there are fewer searches than planned."""

    def run(self, question: str, search: Callable[[str], S]) -> Iterator[S]:
        """Search for the question, then for what the model plans, until the deadline.

        Args:
            question: The question; an error of its search is raised.
            search: Searches for one text.
        """
        deadline = time.monotonic() + self._expansion.planning_deadline_ms / 1000
        yield search(question)
        planned = self._plan(question)
        for at, text in enumerate(planned):
            if time.monotonic() >= deadline:
                self.warnings.append(
                    f"{at} of {len(planned)} planned searches ran: "
                    f"rag.expansion.planning_deadline_ms of {self._expansion.planning_deadline_ms:,} is over"
                )
                return
            try:
                yield search(text)
            except RequestError as error:
                self.warnings.append(f"a planned search was not possible: {error}")

    def _plan(self, question: str) -> tuple[str, ...]:
        try:
            return plan_searches(self._model, question, self._expansion.planned_searches - 1)
        except Exception as error:  # noqa: BLE001 — whatever a model of the caller raises, the question is answered
            log.warning("no plan of searches: %s", error, extra={"action": "planning_failed"})
            self.warnings.append(f"no planned searches: {reader_message(error)}")
            return ()
