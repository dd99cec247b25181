"""The gaps of a tenant's documents: group unanswered questions, ask them again, and report them."""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.errors import DatabaseUnavailable, KosmosError
from kosmos_rag.core.types import EVALUATOR
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.gaps.grouping import (
    UNRELATED,
    assign_groups,
    build_gaps,
    count_recent,
    measure_baseline,
    normalise,
)
from kosmos_rag.evaluation.gaps.records import GapReport, UnansweredQuestion, UnansweredReason
from kosmos_rag.evaluation.gaps.store import UnansweredStore
from kosmos_rag.evaluation.settings import GapSettings

log = logging.getLogger(__name__)

_FAILED = {"action": "gap_check_failed"}
CHECKS_PER_ROUND = 50
"""Questions that one round of maintenance asks again at most."""


class Gaps:
    """The unanswered questions of a tenant, or of one of its collections. Thread-safe.

    Every method raises DatabaseError, and ConfigError without `database.worker_url`.
    """

    def __init__(self, tenant: Tenant) -> None:
        """`tenant` has the scope: all collections, or one."""
        self._tenant = tenant
        self._settings = tenant.settings.section(GapSettings)
        self._store = UnansweredStore(tenant)

    def report(self) -> GapReport:
        """Return the gaps that enough readers have asked about, and numbers of the others."""
        questions, now = self._store.list_questions(), datetime.now(UTC)
        gaps, hidden = build_gaps(questions, min_readers=self._settings.min_readers, now=now)
        new, earlier = count_recent(questions, now)
        return GapReport(
            tenant=self._tenant.name,
            recorded=self._settings.record,
            min_readers=self._settings.min_readers,
            gaps=tuple(gaps),
            hidden_gaps=len(hidden),
            hidden_questions=sum(hidden),
            ungrouped=sum(question.group_id is None for question in questions),
            new=new,
            earlier=earlier,
        )

    def group(self) -> int:
        """Group the questions without a group by their words and vectors; return their number.

        Raises ModelUnavailable, ModelError.
        """
        questions = self._store.list_questions()
        if all(question.group_id is not None for question in questions):
            return 0
        vectors, baseline = self._embed(questions)
        groups = assign_groups(questions, vectors, baseline)
        self._store.store_groups(groups)
        return len(groups)

    def _embed(self, questions: Sequence[UnansweredQuestion]) -> tuple[NDArray[np.float32], float]:
        """Return the vectors of questions, of length 1, and the cosine of unrelated questions."""
        model = self._tenant.embedding_model
        stored = self._store.read_vectors(model)
        missing = [question for question in questions if question.id not in stored]
        texts = [*UNRELATED, *(question.question for question in missing)]
        embedded = normalise(np.asarray(self._tenant.embed(texts), dtype=np.float32))
        new = dict(zip((question.id for question in missing), embedded[len(UNRELATED) :], strict=True))
        self._store.store_vectors(model, new)
        vectors = stored | new
        return np.stack([vectors[question.id] for question in questions]), measure_baseline(embedded[: len(UNRELATED)])

    def prune(self) -> int:
        """Delete old questions by `gaps.keep_days` and `gaps.max_questions`; return their number."""
        before = datetime.now(UTC) - timedelta(days=self._settings.keep_days)
        return self._store.prune(before=before, max_questions=self._settings.max_questions)


def check_unanswered(
    engine: Engine, tenant: Tenant, *, limit: int = CHECKS_PER_ROUND, progress: Callable[[], None] | None = None
) -> int:
    """Ask unanswered questions again, each as its reader, and store which are answered now.

    A question is asked only where the documents or settings of its reader have changed. The language model is called
    only for questions that it has declined. The audit log has these questions under the subject of evaluations.

    Args:
        tenant: All collections, or one.
        limit: Number of questions, those first whose check is the longest ago.
        progress: Called before each question.

    Returns the number of questions that are answered now. Raises ConfigError, DatabaseError.
    """
    store, answered = UnansweredStore(tenant), 0
    for question in store.list_to_check(limit=limit):
        if progress is not None:
            progress()
        at = datetime.now(UTC)
        reader = engine.tenant(
            tenant.name, principals=question.principals, collection=question.collection, subject=EVALUATOR
        )
        state, is_answered = question.checked_state, False
        try:
            present = _identify_state(reader)
            is_answered = present != state and is_answered_now(reader, question)
            state = present
        except DatabaseUnavailable:
            raise
        except KosmosError as error:  # of this question; the others are asked
            log.warning("an unanswered question was not asked again: %s", type(error).__name__, extra=_FAILED)
        store.store_check(question.id, at=at, state=state, is_answered=is_answered)
        answered += is_answered
    return answered


def is_answered_now(reader: Tenant, question: UnansweredQuestion) -> bool:
    """Return whether a question has an answer now. Raises what an answer raises."""
    if question.reason is UnansweredReason.DECLINED:
        return not reader.answer(question.question).refused
    # The first event says whether the evidence is sufficient, before a model is called.
    stream = reader.stream_answer(question.question)
    try:
        return not stream.sources.refused
    finally:
        stream.close()


def _identify_state(reader: Tenant) -> str:
    """Return what identifies the documents of a reader and the settings of its answers."""
    changes = reader.last_changes()
    names = changes if reader.collection is None else changes.keys() & {reader.collection}
    content = [reader.effective_settings.settings_hash, sorted((name, changes[name]) for name in names)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
