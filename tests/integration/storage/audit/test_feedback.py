"""What readers think of answers: kept once a reader and thing, and told to content owners."""

import uuid

import psycopg
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.types import EVERYONE, Rating
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import opened

pytestmark = pytest.mark.usefixtures("tenant_name")


def _rows(admin: psycopg.Connection, scope: Tenant) -> int:
    ((count,),) = admin.execute("SELECT count(*) FROM kosmos.feedback WHERE tenant_id = %s", [scope.id]).fetchall()
    return int(count)


def test_retrieval__is_named_by_the_id_of_its_record(acme: Tenant) -> None:
    outcome, context, answer = acme.search("churn"), acme.context("churn"), acme.answer("What is churn?")
    with acme.stream_answer("What is churn?") as stream:
        streamed = stream.sources.context.retrieval
    ids = [outcome.id, context.retrieval.id, answer.context.retrieval.id, streamed.id]
    assert [record.id for record in reversed(acme.audit.find())] == ids
    again = acme.search("churn")
    assert again.cached
    assert again.id != outcome.id


def test_log_off__names_no_retrieval(engine: Engine, tenant_name: str) -> None:
    assert engine.tenant(tenant_name).search("churn").id is None


def test_second_word__replaces_the_first_on_the_same_thing(acme: Tenant, admin: psycopg.Connection) -> None:
    outcome = acme.search("churn of accounts")
    hit = outcome.hits[0]
    first = acme.feedback("up", retrieval_id=outcome.id)
    second = acme.feedback(Rating.DOWN, retrieval_id=outcome.id, comment="of last year")
    assert (first.id, first.rating, second.rating) == (second.id, "up", "down")
    assert (second.question, second.subject, second.source) == ("churn of accounts", "ada", None)
    assert _rows(admin, acme) == 1
    of_hit = acme.feedback("down", retrieval_id=outcome.id, chunk_id=hit.chunk_id)
    assert (of_hit.source, of_hit.question_sha256) == (hit.source, second.question_sha256)
    assert _rows(admin, acme) == 2
    assert acme.feedback("up", question="churn  of accounts").question_sha256 == second.question_sha256
    assert _rows(admin, acme) == 3


def test_failed__tells_what_was_rated_down(acme: Tenant, audited: Engine, tenant_name: str) -> None:
    bob = audited.tenant(tenant_name, subject="bob")
    for scope in (acme, bob):
        outcome = scope.search("churn of accounts")
        scope.feedback("down", retrieval_id=outcome.id, comment=f"{scope is bob}")
    acme.feedback("up", question="revenue")
    acme.answer("Who plays the violin?")
    first, second = acme.audit.list_failed_questions()
    assert (first.question, first.times, first.disliked, first.subjects) == ("churn of accounts", 0, 2, 2)
    assert first.comments == ("True", "False")
    assert (second.question, second.times, second.disliked, second.comments) == ("Who plays the violin?", 1, 0, ())
    assert audited.tenant(f"{tenant_name}-other").audit.list_failed_questions() == []


def test_nobody__rates_what_is_not_theirs(acme: Tenant, audited: Engine, tenant_name: str) -> None:
    outcome = acme.search("churn of accounts")
    chunk = outcome.hits[0].chunk_id
    strangers = [
        audited.tenant(tenant_name, subject="bob"),
        audited.tenant(f"{tenant_name}-other", subject="ada"),
    ]
    for stranger in strangers:
        result = set()
        for retrieval_id in (outcome.id, uuid.uuid4()):
            with pytest.raises(NotFound) as refused:
                stranger.feedback("up", retrieval_id=retrieval_id)
            result.add(str(refused.value))
        assert len(result) == 1
    result = set()
    for scope in (audited.tenant(tenant_name, subject="eve", principals=["sales"]), strangers[1]):
        for chunk_id in (chunk, uuid.uuid4()):
            with pytest.raises(NotFound) as refused:
                scope.feedback("up", question="churn", chunk_id=chunk_id)
            result.add(str(refused.value))
    with pytest.raises(NotFound):
        acme.feedback("up", retrieval_id=outcome.id, chunk_id=uuid.uuid4())
    assert len(result) == 1
    assert strangers[0].feedback("up", question="churn", chunk_id=chunk).source == outcome.hits[0].source


def test_passage__of_the_log_may_be_gone(acme: Tenant) -> None:
    outcome = acme.search("churn of accounts")
    acme.delete(["churn.md", "revenue.md"])
    assert (
        acme.feedback("down", retrieval_id=outcome.id, chunk_id=outcome.hits[0].chunk_id).source
        == outcome.hits[0].source
    )


def test_questions_off__keep_texts_out(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {"rag.audit.enabled": True}) as engine:
        before = engine.tenant(tenant_name, subject="ada").search("revenue")
    with opened(settings, {"rag.audit.enabled": True, "rag.audit.questions": False}) as engine:
        scope = engine.tenant(tenant_name, subject="ada")
        logged = scope.feedback("down", retrieval_id=scope.search("churn").id)
        feedback = scope.feedback("down", question="churn")
        assert (logged.question, feedback.question) == (None, None)
        failed = next(
            failed_question for failed_question in scope.audit.list_failed_questions() if failed_question.disliked
        )
        assert (failed.question, failed.disliked) == (None, 2)
        # The log is given up by months, and ratings are not: a text that is still in it goes no further.
        assert scope.feedback("down", retrieval_id=before.id).question is None


def test_feedback__that_is_none_is_refused(engine: Engine, tenant_name: str) -> None:
    ada = engine.tenant(tenant_name, subject="ada")
    with pytest.raises(RequestError, match="the rating is 'sideways'; use up, down"):
        ada.feedback("sideways", question="churn")
    with pytest.raises(RequestError, match="needs one object"):
        ada.feedback("up")
    with pytest.raises(RequestError, match="needs one object"):
        ada.feedback("up", question="churn", retrieval_id=uuid.uuid4())
    for question in (" ", "a\x00", "a" * 20_001):
        with pytest.raises(RequestError, match="the question is"):
            ada.feedback("up", question=question)
    with pytest.raises(RequestError, match="the comment is"):
        ada.feedback("up", question="churn", comment="a" * 2_001)
    with pytest.raises(RequestError, match="the reason is 'dull'; use wrong, incomplete, outdated, not_covered"):
        ada.feedback("down", question="churn", reason="dull")
    with pytest.raises(RequestError, match="a rating up cannot have the reason wrong"):
        ada.feedback("up", question="churn", reason="wrong")
    with pytest.raises(RequestError, match="needs a subject; name it"):
        engine.tenant(tenant_name).feedback("up", question="churn")


def test_table__is_shown_to_the_worker_of_its_tenant_alone(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    for name in (tenant_name, f"{tenant_name}-other"):
        engine.tenant(name, subject="ada").feedback("up", question="churn")
    with psycopg.connect(database.worker_url or "") as worker:
        count = b"SELECT count(*), count(DISTINCT tenant_id) FROM kosmos.feedback"
        assert worker.execute(count).fetchone() == (0, 0)
        worker.execute("SELECT kosmos.set_tenant_context(%s, %s)", (tenant(tenant_name).id, [EVERYONE]))
        assert worker.execute(count).fetchone() == (1, 1)
    with psycopg.connect(database.url) as app:
        app.execute("SELECT kosmos.set_tenant_context(%s, %s)", (tenant(tenant_name).id, [EVERYONE]))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute(count)
