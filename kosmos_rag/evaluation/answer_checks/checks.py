"""Check sampled answers again, and report what was found."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from kosmos_rag.core.errors import DatabaseUnavailable, KosmosError, RequestError
from kosmos_rag.core.types import EVALUATOR
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.answer_checks.records import AnswerCheckReport, AnswerVerdict, CitedAnswer
from kosmos_rag.evaluation.answer_checks.store import AnswerSampleStore
from kosmos_rag.evaluation.settings import AnswerCheckSettings

log = logging.getLogger(__name__)

CHECKS_PER_ROUND = 200
"""Answers that one round of maintenance checks at most."""


class AnswerChecks:
    """The sampled answers of a tenant, or of one of its collections. Thread-safe.

    Every method raises DatabaseError, and ConfigError without `database.worker_url`.
    """

    def __init__(self, tenant: Tenant) -> None:
        """`tenant` has the scope: all collections, or one."""
        self._tenant = tenant
        self._settings = tenant.settings.section(AnswerCheckSettings)
        self._store = AnswerSampleStore(tenant)

    def report(self) -> AnswerCheckReport:
        """Return what the checks and the readers say, by collection."""
        return AnswerCheckReport(
            tenant=self._tenant.name,
            share=self._settings.share,
            keep_days=self._settings.keep_days,
            collections=tuple(self._store.count()),
        )

    def prune(self) -> int:
        """Delete old samples by `answer_checks.keep_days` and `answer_checks.max_answers`; return their number."""
        before = datetime.now(UTC) - timedelta(days=self._settings.keep_days)
        return self._store.prune(before=before, max_answers=self._settings.max_answers)


def check_answers(
    engine: Engine, tenant: Tenant, *, limit: int = CHECKS_PER_ROUND, progress: Callable[[], None] | None = None
) -> Counter[AnswerVerdict]:
    """Check sampled answers, each with the documents that its reader may read now.

    An answer whose check fails is logged, and waits for the next round.

    Args:
        engine: The engine of the tenant.
        tenant: All collections, or one.
        limit: Number of answers, the oldest first.
        progress: Called before each answer.

    Returns the number of answers by verdict. Raises ConfigError, DatabaseError.
    """
    store, verdicts = AnswerSampleStore(tenant), Counter[AnswerVerdict]()
    for waiting in store.list_waiting(limit=limit):
        if progress is not None:
            progress()
        reader = engine.tenant(
            tenant.name, principals=waiting.principals, collection=waiting.collection, subject=EVALUATOR
        )
        try:
            verdict = check_answer(reader, CitedAnswer.from_dict(waiting.answer))
        except DatabaseUnavailable:
            raise
        except KosmosError as error:  # of this answer; the others are checked
            log.warning(
                "a sampled answer was not checked: %s", type(error).__name__, extra={"action": "answer_check_failed"}
            )
            continue
        store.store_verdict(waiting.id, verdict)
        verdicts[verdict] += 1
    return verdicts


def check_answer(reader: Tenant, cited: CitedAnswer) -> AnswerVerdict:
    """Return whether the citations of an answer hold. Raises DatabaseError, ModelUnavailable, ModelError."""
    if cited.text is not None and not reader.check_citations(cited.text, cited.passages).supported:
        return AnswerVerdict.UNSUPPORTED
    try:
        statuses = reader.check_quotes(cited.quotes)
    except RequestError:  # a quote differs from the text that its citation has the hash of
        return AnswerVerdict.UNSUPPORTED
    is_outdated = any(status.state == "gone" for status in statuses)
    return AnswerVerdict.OUTDATED if is_outdated else AnswerVerdict.SUPPORTED
