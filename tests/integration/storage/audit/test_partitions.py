"""The months of the log: made ahead, dropped past retention; nothing is lost where one is missing."""

from datetime import UTC, date, datetime
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.types import AuditReport
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.storage.audit import partitions, seals
from kosmos_rag.storage.audit.partitions import PartitionRotation, add_months, retention_start
from kosmos_rag.storage.audit.seals import PositionedRecord, seal_events, verify_seals
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import opened

Admin = psycopg.Connection[Any]
ACME = tenant("acme")


def _partitions(admin: Admin) -> set[str]:
    rows = admin.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'kosmos.audit_events'::regclass"
    )
    return {name.removeprefix("kosmos.") for (name,) in rows.fetchall()}


def _move(admin: Admin, to: datetime) -> None:
    """Let all that is in the log be of another time."""
    for table in ("audit_events", "audit_passages"):
        admin.execute(f"UPDATE kosmos.{table} SET at = %s".encode(), [to])


def _rotate(engine: Engine, now: datetime, keep_months: int = 2) -> list[str]:
    return PartitionRotation(engine.database, keep_months=keep_months).rotate(ACME, now=now)


def _seal(engine: Engine) -> int:
    """Seal, and leave the months alone, which go by today's date."""
    return len(seal_events(engine.database.worker, ACME))


def _checked(engine: Engine) -> AuditReport:
    return verify_seals(engine.database.worker, ACME)


def test_months__are_counted_over_years() -> None:
    assert add_months(date(2026, 11, 22), 0) == date(2026, 11, 1)
    assert add_months(date(2026, 11, 22), 2) == date(2027, 1, 1)
    assert add_months(date(2026, 1, 31), -13) == date(2024, 12, 1)
    assert retention_start(datetime(2026, 11, 22, tzinfo=UTC), 12) == date(2025, 11, 1)


def test_record__without_its_month_is_in_the_default(acme: Tenant, admin: Admin) -> None:
    acme.search("churn of accounts")
    assert admin.execute("SELECT count(*) FROM kosmos.audit_events_default").fetchone() == (1,)
    assert len(acme.audit.find()) == 1


def test_months_ahead__are_made_once_and_take_what_comes(audited: Engine, acme: Tenant, admin: Admin) -> None:
    now = datetime.now(UTC)
    past = datetime.combine(add_months(now.date(), -1), datetime.min.time(), tzinfo=UTC)
    result = _rotate(audited, past)
    assert len(result) == 4
    assert _rotate(audited, past) == []
    running = f"audit_events_{now:%Y_%m}"
    assert _partitions(admin) == {"audit_events_default", running, f"audit_events_{add_months(now.date(), 1):%Y_%m}"}
    acme.search("churn of accounts")
    assert admin.execute(f"SELECT count(*) FROM kosmos.{running}".encode()).fetchone() == (1,)
    assert acme.audit.seal() == 1
    assert acme.audit.verify().intact
    assert [access.subject for access in acme.audit.list_document_access("churn.md")] == ["ada"]


def test_made_partition__is_closed_to_all_but_its_parent(
    audited: Engine, acme: Tenant, database: DatabaseSettings, settings: Settings
) -> None:
    (name, *_) = _rotate(audited, datetime(2026, 11, 5, tzinfo=UTC))[0].split()
    for url in (database.url, database.worker_url or ""):
        with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"SELECT 1 FROM kosmos.{name}".encode())
    with opened(settings, {}) as engine:  # its preflight looks at the new table too
        assert engine.tenant("acme").search("churn").returned


def test_retention__drops_months_and_keeps_seals(audited: Engine, acme: Tenant, admin: Admin) -> None:
    now = datetime(2026, 5, 10, tzinfo=UTC)
    _rotate(audited, now)
    acme.search("churn of accounts")
    _move(admin, datetime(2026, 6, 3, tzinfo=UTC))
    assert _seal(audited) == 1
    acme.search("revenue of accounts")
    assert _seal(audited) == 1
    assert "audit_events_2026_06" in _partitions(admin)

    last_kept = datetime(2026, 8, 31, tzinfo=UTC)
    _rotate(audited, last_kept)
    assert _checked(audited).rows == 2
    past = datetime(2026, 9, 1, tzinfo=UTC)
    assert "audit_events_2026_06 dropped" in _rotate(audited, past)
    assert "audit_events_2026_06" not in _partitions(admin)
    report = _checked(audited)
    assert (report.intact, report.seals, report.rows, report.expired) == (True, 2, 1, 1)
    assert [record.question for record in acme.audit.find()] == ["revenue of accounts"]


def test_verify__beside_a_rotation_takes_what_it_drops_for_expired(
    audited: Engine, acme: Tenant, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme.search("churn of accounts")
    _move(admin, datetime(2026, 2, 3, tzinfo=UTC))
    assert _seal(audited) == 1
    read = seals.read_records

    def rotated_before(*values: Any, **options: Any) -> list[PositionedRecord]:
        _rotate(audited, datetime(2026, 9, 1, tzinfo=UTC))
        return read(*values, **options)

    monkeypatch.setattr(seals, "read_records", rotated_before)
    report = _checked(audited)
    assert (report.intact, report.expired) == (True, 1)


def test_month__that_went_before_its_time_shows(audited: Engine, acme: Tenant, admin: Admin) -> None:
    acme.search("churn of accounts")
    _move(admin, datetime(2026, 6, 3, tzinfo=UTC))
    assert _seal(audited) == 1
    _rotate(audited, datetime(2026, 8, 31, tzinfo=UTC))
    admin.execute("DELETE FROM kosmos.audit_events")
    assert "1 of 1 records under seal 1" in (_checked(audited).problem or "")


def test_retention__that_grew_again_leaves_what_was_given_up(audited: Engine, acme: Tenant, admin: Admin) -> None:
    acme.search("churn of accounts")
    _move(admin, datetime(2026, 2, 3, tzinfo=UTC))
    assert _seal(audited) == 1
    now = datetime(2026, 9, 1, tzinfo=UTC)
    _rotate(audited, now, keep_months=1)
    _rotate(audited, now, keep_months=100)
    report = acme.audit.verify()
    assert (report.intact, report.expired) == (True, 1)


def test_roles__cannot_say_what_was_given_up(acme: Tenant, database: DatabaseSettings) -> None:
    command = "CREATE OR REPLACE FUNCTION kosmos.audit_expired_before() RETURNS timestamptz LANGUAGE sql RETURN now()"
    for url in (database.url, database.worker_url or ""):
        with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(command.encode())


def test_retention__beside_a_long_look_takes_records_with_their_passages(
    audited: Engine, acme: Tenant, database: DatabaseSettings, admin: Admin
) -> None:
    _rotate(audited, datetime(2026, 5, 10, tzinfo=UTC))
    for month in (4, 6):
        acme.search(f"churn of accounts {month}")
        for table in ("audit_events", "audit_passages"):
            admin.execute(
                f"UPDATE kosmos.{table} SET at = make_date(2026, {month}, 3) WHERE at > '2026-10-01'".encode()
            )
        assert _seal(audited) == 1
    past = datetime(2026, 9, 1, tzinfo=UTC)
    with psycopg.connect(database.worker_url or "") as reading:
        reading.execute("SELECT count(*) FROM kosmos.audit_events")
        assert "1 records of audit_events_default deleted" in _rotate(audited, past)
        report = _checked(audited)
        assert (report.intact, report.expired, report.rows) == (True, 1, 1)
    assert "audit_passages_2026_06 dropped" in _rotate(audited, past)
    assert _checked(audited).expired == 2
    assert admin.execute("SELECT count(*) FROM kosmos.audit_passages").fetchone() == (0,)


def test_default__is_emptied_in_steps(
    audited: Engine, acme: Tenant, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_DELETE_BATCH", 2)
    for number in range(5):
        acme.search(f"churn {number}")
    _move(admin, datetime(2024, 2, 3, tzinfo=UTC))
    assert _seal(audited) == 1
    rotated = datetime.now(UTC)
    assert "5 records of audit_events_default deleted" in _rotate(audited, rotated)
    assert not any("deleted" in step for step in _rotate(audited, rotated))
    assert _checked(audited).expired == 1


def test_retention__empties_the_default_too(audited: Engine, acme: Tenant, admin: Admin) -> None:
    acme.search("churn of accounts")
    _move(admin, datetime(2024, 2, 3, tzinfo=UTC))
    assert _seal(audited) == 1
    acme.search("revenue of accounts")
    result = _rotate(audited, datetime.now(UTC))
    assert "1 records of audit_events_default deleted" in result
    assert [record.question for record in acme.audit.find()] == ["revenue of accounts"]
    assert acme.audit.verify().expired == 1
    unprotected = admin.execute(
        "SELECT 1 FROM pg_class WHERE relname ~ '^retriev' AND relkind IN ('r', 'p') AND NOT relforcerowsecurity"
    )
    assert unprotected.fetchall() == []


def test_month_that_began_in_the_default__stays_there(audited: Engine, acme: Tenant, admin: Admin) -> None:
    acme.search("churn of accounts")
    _move(admin, datetime(2026, 6, 3, tzinfo=UTC))
    result = _rotate(audited, datetime(2026, 5, 10, tzinfo=UTC), keep_months=100)
    assert result == ["audit_events_2026_07 made", "audit_passages_2026_07 made"]
    assert len(acme.audit.find()) == 1
    assert acme.search("churn").returned


def test_month_that_began_in_the_default__is_tried_once(
    audited: Engine, acme: Tenant, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    acme.search("churn of accounts")
    _move(admin, datetime(2026, 6, 3, tzinfo=UTC))
    months = PartitionRotation(audited.database, keep_months=100)
    for _ in range(3):
        months.rotate(ACME, now=datetime(2026, 5, 10, tzinfo=UTC))
    assert [record.message for record in caplog.records if "2026-06" in record.message] == [caplog.records[0].message]


def test_rotation__gives_way_to_a_long_look_at_the_log(
    audited: Engine, acme: Tenant, database: DatabaseSettings, admin: Admin
) -> None:
    with psycopg.connect(database.worker_url or "") as reading:
        reading.execute("SELECT count(*) FROM kosmos.audit_events")
        assert _rotate(audited, datetime(2026, 5, 10, tzinfo=UTC)) == []
    assert len(_rotate(audited, datetime(2026, 5, 10, tzinfo=UTC))) == 4


def test_without_an_administrator__sealing_is_done_and_months_are_asked_for(
    settings: Settings, database: DatabaseSettings
) -> None:
    poor = settings.model_copy(update={"database": database.model_copy(update={"admin_url": None})})
    with opened(poor, {"rag.audit.enabled": True}) as engine:
        scope = engine.tenant("acme")
        scope.search("churn")
        with pytest.raises(ConfigError, match=r"database\.admin_url is not set"):
            scope.audit.seal()
        assert scope.audit.verify().seals == 1
