"""Passes of a worker over a mailbox of a real server."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Tenant
from tests.integration.worker.working import Work, assert_adds_up, counts, last_run
from tests.unit.ingestion.sources.dovecot import PASSWORD, Dovecot

pytestmark = pytest.mark.emptied_database


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with Dovecot.run() as server:
        yield server


def test_mailbox__is_mirrored_for_its_readers(
    engine: Engine,
    scope: Tenant,
    work: Work,
    dovecot: Dovecot,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = dovecot.add_user()
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec = {
        "kind": "imap", "name": "kb", "host": "localhost", "port": dovecot.port, "user": user,
        "password_env": "MAIL_PASSWORD", "acl": ["support"],
    }  # fmt: skip
    with dovecot.log_in(user) as connection:
        connection.create("Archive")
        for topic in ("churn", "refunds", "invoices"):
            mail = f"From: a@x.org\r\nDate: Thu, 26 Nov 2026 10:00:00 +0000\r\nSubject: {topic}\r\n\r\nOn {topic}.\r\n"
            connection.append("INBOX", "", "", mail.encode())
        connection.append("INBOX", "", "", b"Content-Type: application/pkcs7-mime\r\nFrom: b@x\r\nDate: x\r\n\r\nAAAA")
    scope.jobs.enqueue(spec)
    work()
    assert counts(last_run(scope)) == {"new": 3, "failed": 1}
    assert [failure.source for failure in last_run(scope).failures] == ["imap://kb/INBOX/4.eml"]
    support = engine.tenant("acme", principals=("support",))
    assert support.search("refunds").hits[0].source == "imap://kb/INBOX/2.eml"
    assert engine.tenant("acme", principals=("sales",)).search("refunds").hits == ()

    with dovecot.log_in(user) as connection:
        connection.select("INBOX")
        connection.uid("STORE", "1", "+FLAGS", r"(\Deleted)")
        connection.expunge()
        connection.uid("MOVE", "2", "Archive")
    scope.jobs.enqueue(spec)
    work()
    assert sorted(document.source for document in support.documents()) == [
        "imap://kb/Archive/1.eml", "imap://kb/INBOX/3.eml",
    ]  # fmt: skip
    assert support.search("refunds").hits[0].source == "imap://kb/Archive/1.eml"
    assert_adds_up(engine, scope)
    with psycopg.connect(engine.settings.database.admin_url or "") as connection:
        jobs = connection.execute("SELECT payload::text FROM kosmos.jobs").fetchall()
        assert jobs
        assert not any(PASSWORD in payload for (payload,) in jobs)
