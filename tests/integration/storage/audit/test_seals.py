"""Seals: they hold over a log that is as it was, and name the first place where it is not."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.storage.audit import seals
from kosmos_rag.storage.audit.log import create_event_id
from kosmos_rag.storage.sql import statement

Admin = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("tenant_name")


@pytest.fixture
def sealed(acme: Tenant) -> Tenant:
    """A tenant with three seals, over two records each, and two records behind them."""
    for number in range(8):
        acme.search(f"churn of accounts {number}")
        if number in {1, 3, 5}:
            assert acme.audit.seal() == 1
    return acme


def test_seals__hold_over_what_nobody_touched(sealed: Tenant, audited: Engine, tenant_name: str) -> None:
    report = sealed.audit.verify()
    assert report.intact
    assert (report.seals, report.rows, report.expired, report.unsealed) == (3, 6, 0, 2)
    assert sealed.audit.seal() == 1
    assert sealed.audit.seal() == 0
    again = sealed.audit.verify()
    assert (again.seals, again.rows, again.unsealed) == (4, 8, 0)
    assert again.head not in {None, report.head}
    empty = audited.tenant(f"{tenant_name}-other").audit.verify()
    assert (empty.intact, empty.seals, empty.head) == (True, 0, None)


SECOND = "(SELECT id FROM kosmos.audit_events ORDER BY position OFFSET 3 LIMIT 1)"
LATE_RECORD = f"""
INSERT INTO kosmos.audit_events
SELECT tenant_id, gen_random_uuid(), at, position, kind, outcome, collection, subject, principals, question,
       question_sha256, search_query, settings_hash, cached, milliseconds, follows
  FROM kosmos.audit_events WHERE id = {SECOND}
"""
LATE_PASSAGE = f"""
INSERT INTO kosmos.audit_passages
SELECT tenant_id, event_id, at, 99, shown, document_id, version_id, version, source, source_hash, chunk_ids, score
  FROM kosmos.audit_passages WHERE event_id = {SECOND} AND rank = 1
"""


def _tamper(admin: Admin, scope: Tenant, command: str) -> int:
    """Run a command over the records and seals of one tenant, and return how many rows it changed."""
    of_tenant = command.replace("ORDER BY", "WHERE tenant_id = %(tenant)s ORDER BY")
    of_tenant = of_tenant.replace("WHERE number", "WHERE tenant_id = %(tenant)s AND number")
    return admin.execute(of_tenant.encode(), {"tenant": scope.id}).rowcount


@pytest.mark.parametrize(
    ("tampering", "problem"),
    [
        (
            f"UPDATE kosmos.audit_events SET subject = 'eve' WHERE id = {SECOND}",
            "a record of the 2 under seal 2 .* changed",
        ),
        (f"UPDATE kosmos.audit_events SET question = NULL WHERE id = {SECOND}", "changed"),
        (f"UPDATE kosmos.audit_passages SET score = score + 1e-12 WHERE event_id = {SECOND}", "changed"),
        (f"UPDATE kosmos.audit_passages SET source = 'x' WHERE event_id = {SECOND} AND rank = 1", "changed"),
        (f"DELETE FROM kosmos.audit_passages WHERE event_id = {SECOND} AND rank = 2", "changed"),
        (f"DELETE FROM kosmos.audit_events WHERE id = {SECOND}", "1 of 2 records under seal 2 .* were removed"),
        (LATE_RECORD, "records were put in later under seal 2"),
        (LATE_PASSAGE, "changed"),
        ("UPDATE kosmos.audit_seals SET rows_sha256 = sha256 WHERE number = 2", "seal 2 .* was changed"),
        ("UPDATE kosmos.audit_seals SET at = at + interval '1 s' WHERE number = 2", "seal 2 .* was changed"),
        ("DELETE FROM kosmos.audit_seals WHERE number = 2", "seals are missing"),
    ],
)
def test_verify__names_the_first_seal_that_does_not_hold(
    sealed: Tenant, admin: Admin, tampering: str, problem: str
) -> None:
    assert _tamper(admin, sealed, tampering) >= 1
    report = sealed.audit.verify()
    assert not report.intact
    missing = problem == "seals are missing"
    assert report.broken == (3 if missing else 2)
    assert (report.seals, report.failing) == (1 if missing else 2, 1)
    assert re.search(problem, report.problem or ""), report.problem


def test_verify__goes_on_behind_a_seal_that_does_not_hold(sealed: Tenant, admin: Admin) -> None:
    admin.execute("UPDATE kosmos.audit_events SET subject = 'eve' WHERE tenant_id = %s", [sealed.id])
    report = sealed.audit.verify()
    assert (report.broken, report.failing, report.seals, report.unsealed) == (1, 3, 0, 2)


def test_seal__made_anew_over_changed_records_breaks_the_chain(sealed: Tenant, admin: Admin) -> None:
    assert _tamper(admin, sealed, f"UPDATE kosmos.audit_events SET subject = 'eve' WHERE id = {SECOND}") == 1
    assert _tamper(admin, sealed, "DELETE FROM kosmos.audit_seals WHERE number = 3") == 1
    assert _tamper(admin, sealed, "DELETE FROM kosmos.audit_seals WHERE number = 2") == 1
    before = sealed.audit.verify()
    assert before.intact
    # Whoever owns the database can seal it all again: what tells is the last seal, kept elsewhere.
    sealed.audit.seal()
    assert sealed.audit.verify().intact
    assert sealed.audit.verify().head != before.head


def test_seal__waits_for_records_on_their_way(acme: Tenant, audited: Engine) -> None:
    acme.search("churn")
    app = audited.database.app
    event, may_commit = threading.Event(), threading.Event()

    def slow() -> None:
        now = datetime.now(UTC)
        values: dict[str, Any] = dict.fromkeys(("collection", "subject", "question", "search_query", "follows"))
        values |= {"tenant_id": acme.id, "id": create_event_id(now), "at": now, "kind": "search", "outcome": "none"}
        values |= {"principals": [], "question_sha256": "", "settings_hash": "", "cached": False, "milliseconds": 0.0}
        with app.transaction(acme.id, ["everyone"], append_only=True) as connection:
            connection.execute(statement("lock_audit_log_shared"), values)
            connection.execute(statement("insert_audit_event"), values)
            connection.execute("SELECT 1").fetchone()
            event.set()
            assert may_commit.wait(20)

    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(slow)
        assert event.wait(20)
        sealing = threads.submit(acme.audit.seal)
        with pytest.raises(TimeoutError):
            sealing.result(timeout=1.0)
        may_commit.set()
        writing.result(timeout=20)
        assert sealing.result(timeout=20) == 1
    report = acme.audit.verify()
    assert (report.intact, report.rows, report.unsealed) == (True, 2, 0)


def test_seals__beside_questions_and_each_other_hold_and_count_all(acme: Tenant) -> None:
    question_count = 60
    with ThreadPoolExecutor(8) as threads:
        asking = [threads.submit(acme.search, f"churn {number}") for number in range(question_count)]
        sealing = [threads.submit(acme.audit.seal) for _ in range(12)]
        for result in asking + sealing:  # futures of two kinds
            result.result(timeout=60)
    acme.audit.seal()
    report = acme.audit.verify()
    assert report.intact, report.problem
    assert (report.rows, report.unsealed) == (question_count, 0)


def test_seal__is_of_one_month_and_a_batch(acme: Tenant, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "_BATCH_SIZE", 2)
    for number in range(5):
        acme.search(f"churn {number}")
    first = datetime.now(UTC).replace(day=1) - timedelta(days=1)
    last = acme.audit.find()[-1].id
    admin.execute("UPDATE kosmos.audit_events SET at = %s WHERE id = %s", [first, last])
    admin.execute("UPDATE kosmos.audit_passages SET at = %s WHERE event_id = %s", [first, last])
    assert acme.audit.seal() == 4
    seals_of_tenant = "SELECT number, rows, month FROM kosmos.audit_seals WHERE tenant_id = %s ORDER BY number"
    result = admin.execute(seals_of_tenant, [acme.id]).fetchall()
    assert [rows for _, rows, _ in result] == [1, 1, 2, 1]
    assert result[0][2] == first.date().replace(day=1)
    report = acme.audit.verify()
    assert (report.intact, report.rows) == (True, 5)
