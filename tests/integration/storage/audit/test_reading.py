"""What auditors and content owners ask of the log."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from kosmos_rag import Engine
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVALUATOR, AuditOutcome
from kosmos_rag.engine.tenant import Tenant

pytestmark = pytest.mark.usefixtures("tenant_name")


def test_find__by_subject_outcome_and_time(acme: Tenant, audited: Engine, tenant_name: str) -> None:
    acme.search("churn of accounts")
    audited.tenant(tenant_name, subject="bob", principals=["sales"]).search("churn of accounts")
    later = datetime.now(UTC)
    acme.search("revenue of accounts")
    audit = acme.audit
    assert [(r.subject, r.outcome) for r in audit.find(subject="bob")] == [("bob", AuditOutcome.NONE)]
    assert [r.subject for r in audit.find(outcomes=[AuditOutcome.HITS])] == ["ada", "ada"]
    assert [r.question for r in audit.find(since=later)] == ["revenue of accounts"]
    assert [r.subject for r in audit.find(until=later)] == ["bob", "ada"]
    assert audit.find(since=later + timedelta(hours=1)) == []
    with pytest.raises(RequestError, match="has no time zone"):
        audit.find(since=datetime(2026, 1, 1))


def test_find__page_by_page_gives_each_record_once(acme: Tenant) -> None:
    for number in range(11):
        acme.search(f"churn {number}")
    result = []
    page = acme.audit.find(limit=3)
    while page:
        result += page
        page = acme.audit.find(limit=3, before=page[-1].id)
    assert len(result) == len({record.id for record in result}) == 11
    assert [record.id for record in result] == sorted((record.id for record in result), reverse=True)


def test_who_saw__names_readers_by_source_and_by_id(acme: Tenant, audited: Engine, tenant_name: str) -> None:
    acme.search("churn of accounts")
    audited.tenant(tenant_name, subject="bob").context("churn of accounts")
    audited.tenant(tenant_name, subject="eve", principals=["sales"]).search("churn of accounts")
    accesses = acme.audit.list_document_access("churn.md")
    assert [(item.subject, item.kind) for item in accesses] == [("bob", "context"), ("ada", "search")]
    assert acme.audit.list_document_access(accesses[0].document_id) == accesses
    assert acme.audit.list_document_access("churn.md", limit=1) == accesses[:1]
    assert acme.audit.list_document_access("churn.md", since=datetime.now(UTC)) == []
    assert acme.audit.list_document_access("nothing.md") == []


def test_failed__groups_questions(acme: Tenant, audited: Engine, tenant_name: str) -> None:
    nobody = audited.tenant(tenant_name, subject="bob", principals=["sales"])
    for _ in range(3):
        nobody.search("where is the handbook")
    acme.answer("Who plays the violin?")
    acme.search("churn of accounts")
    first, second = acme.audit.list_failed_questions()
    assert (first.question, first.times, first.refused, first.subjects) == ("where is the handbook", 3, 0, 1)
    assert (second.question, second.times, second.refused) == ("Who plays the violin?", 1, 1)
    assert acme.audit.list_failed_questions(limit=1) == [first]
    assert acme.audit.list_failed_questions(until=first.last_at - timedelta(days=1)) == []


def test_failed__leaves_out_what_evaluations_asked(acme: Tenant, audited: Engine, tenant_name: str) -> None:
    audited.tenant(tenant_name, subject=EVALUATOR).answer("Who plays the violin?")
    audited.tenant(tenant_name).answer("Who plays the cello?")  # of nobody by name
    assert [failed_question.question for failed_question in acme.audit.list_failed_questions()] == [
        "Who plays the cello?"
    ]
    assert len(acme.audit.find(subject=EVALUATOR)) == 1


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, "7"])
def test_limit__is_within_bounds(acme: Tenant, limit: Any) -> None:
    document_access = partial(acme.audit.list_document_access, "churn.md")
    for look in (acme.audit.find, acme.audit.list_failed_questions, document_access):
        with pytest.raises(RequestError, match="ask for 1 to 10000"):
            look(limit=limit)
