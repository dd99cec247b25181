"""Check sampled answers again, and report what was found."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from kosmos_rag.core.errors import (
    ConfigError,
    DatabaseUnavailable,
    KosmosError,
    ModelError,
    ModelUnavailable,
    RequestError,
)
from kosmos_rag.core.types import EVALUATOR
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.answer_checks.records import AnswerCheckReport, AnswerVerdict, CitedAnswer, WaitingAnswer
from kosmos_rag.evaluation.answer_checks.store import AnswerSampleStore
from kosmos_rag.evaluation.settings import AnswerCheckSettings

log = logging.getLogger(__name__)

CHECKS_PER_ROUND = 200
"""Answers that one round of maintenance checks at most."""
_OF_ONE_ANSWER = (ConfigError, ModelError, RequestError, ValueError, TypeError, KeyError)
"""Errors of one answer: its preset, its texts, or the shape that it was stored in."""


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
    engine: Engine,
    tenant: Tenant,
    *,
    limit: int = CHECKS_PER_ROUND,
    progress: Callable[[], None] | None = None,
    verdicts: Counter[AnswerVerdict] | None = None,
) -> Counter[AnswerVerdict]:
    """Check sampled answers, each with the documents that its reader may read now.

    An answer that cannot be checked is deleted and logged: it would be the oldest of the next round too. It waits
    for the next round where the check fails for a reason that may pass.

    Args:
        tenant: All collections, or one.
        limit: Number of answers, the oldest first.
        progress: Called before each answer.
        verdicts: Where the verdicts are counted, also those before an error; None for a new counter.

    Returns the number of answers by verdict. Raises ConfigError without `database.worker_url`, DatabaseError,
    ModelUnavailable.
    """
    store, verdicts = AnswerSampleStore(tenant), Counter[AnswerVerdict]() if verdicts is None else verdicts
    for waiting in store.list_waiting(limit=limit):
        if progress is not None:
            progress()
        try:
            verdict = _check_waiting(engine, tenant, waiting)
        except (DatabaseUnavailable, ModelUnavailable):
            raise
        except _OF_ONE_ANSWER as error:
            log.warning(
                "an answer cannot be checked, and is deleted: %s", type(error).__name__,
                extra={"action": "answer_check_failed", "tenant": tenant.name, "texts": {"error": str(error)}},
            )  # fmt: skip
            store.delete(waiting.id)
        except KosmosError as error:  # that may pass, such as a limit
            log.warning(
                "a sampled answer was not checked: %s", type(error).__name__, extra={"action": "answer_check_failed"}
            )
        else:
            store.store_verdict(waiting.id, verdict)
            verdicts[verdict] += 1
    return verdicts


def _check_waiting(engine: Engine, tenant: Tenant, waiting: WaitingAnswer) -> AnswerVerdict:
    reader = engine.tenant(tenant.name, principals=waiting.principals, collection=waiting.collection, subject=EVALUATOR)
    return check_answer(reader, CitedAnswer.from_dict(waiting.answer))


def check_answer(reader: Tenant, cited: CitedAnswer) -> AnswerVerdict:
    """Return whether the citations of an answer hold. Raises DatabaseError, ModelUnavailable, ModelError."""
    if cited.text is not None:
        report = reader.check_citations(cited.text, cited.passages, citation_format=cited.citation_format)
        if not report.supported:
            return AnswerVerdict.UNSUPPORTED
    try:
        statuses = reader.check_quotes(cited.quotes)
    except RequestError:  # a quote differs from the text that its citation has the hash of
        return AnswerVerdict.UNSUPPORTED
    is_outdated = any(status.state == "gone" for status in statuses)
    return AnswerVerdict.OUTDATED if is_outdated else AnswerVerdict.SUPPORTED
