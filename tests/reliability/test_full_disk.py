"""A disk that fills up during ingestion: nothing stored is lost, the error says why, and it goes on with room."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseUnavailable
from kosmos_rag.core.types import JobState
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import kinds
from kosmos_rag.worker.handlers.maintenance import count_orphans
from kosmos_rag.worker.supervisor import Supervisor
from tests.integration.variants import changed
from tests.reliability.engine_work import create_runner
from tests.waiting import eventually

pytestmark = pytest.mark.slow
SMALL_MB = 160
ROOM_MB = 10
"""Room for the first documents: less than a file of the server's log, which has 16."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for a server and a few documents."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_MB}m,mode=755", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root, outside containers")
    yield folder
    pidfile = folder / "data" / "postmaster.pid"
    if pidfile.exists():
        with suppress(psutil.Error, ValueError):
            server = psutil.Process(int(pidfile.read_text().splitlines()[0]))
            server.kill()
            server.wait(20)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(disk: Path, *, leaves_mb: int = 0) -> Path:
    """Write a file that takes all the room but some."""
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY)
    for size in (2**16, 1):
        with suppress(OSError):
            while True:
                os.write(descriptor, b"x" * size)
    os.ftruncate(descriptor, os.fstat(descriptor).st_size - leaves_mb * 2**20)
    os.close(descriptor)
    return filler


@pytest.fixture
def small(loaded_settings: Settings, disk: Path) -> Settings:
    """Settings with an embedded server on that disk."""
    return loaded_settings.model_copy(update={"database": DatabaseSettings(data_dir=disk / "data")})


def _document(number: int) -> SourceDocument:
    words = " ".join(f"word{number}x{position}" for position in range(4000))
    return SourceDocument(source=f"document-{number}", data=f"number{number} {words}".encode())


def _ingest_until_full(engine: Engine) -> tuple[list[str], str]:
    """Ingest documents one by one. Returns those that were stored, and the message of the one that was not."""
    tenant = engine.tenant("acme")
    stored: list[str] = []
    for number in range(1000):
        report = tenant.ingest([_document(number)], prune=False)
        if report.failed:
            (failure,) = report.failed
            assert failure.code == "disk_full"
            return stored, failure.message
        stored.append(f"document-{number}")
    raise AssertionError("the disk was not full after a thousand documents")


def _is_whole(engine: Engine, stored: list[str]) -> bool:
    tenant = engine.tenant("acme")
    orphans = count_orphans(engine.database, tenant._tenant)
    assert not any(orphans.values()), orphans
    for source in (stored[0], stored[-1]):
        hits = tenant.search(f"number{source.rpartition('-')[2]}", 5).hits
        assert source in {hit.source for hit in hits}
    return set(tenant.sources()) == set(stored)


def test_ingestion__on_a_full_disk_keeps_what_was_stored_and_goes_on_with_room(small: Settings, disk: Path) -> None:
    """A full disk loses no stored data, and ingestion continues when there is space."""
    with Engine(small, embedder=HashingEmbedder()) as engine:
        # Tables need room before the log does: a server that cannot begin another file of its log stops.
        with psycopg.connect(engine.database.admin_conninfo, autocommit=True) as connection:
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
        _fill(disk, leaves_mb=ROOM_MB)
        stored, message = _ingest_until_full(engine)
        assert len(stored) > 3
        assert "No space left on device; the server's disk is full: make room and try again" in message
        assert _is_whole(engine, stored), "it answers on a full disk"
        subprocess.run(["mount", "-o", f"remount,size={3 * SMALL_MB}m", str(disk)], check=True)
        failed = _document(len(stored))
        assert engine.tenant("acme").ingest([failed], prune=False).new == 1
        assert _is_whole(engine, [*stored, failed.source])


def test_server__that_a_full_disk_stopped_comes_back_with_room(small: Settings, disk: Path) -> None:
    """The log of transactions cannot be written: PostgreSQL stops, and does not start until there is room."""
    stored = [f"document-{number}" for number in range(5)]
    with Engine(small, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest([_document(number) for number in range(5)], prune=False)
        filler = _fill(disk)
        with suppress(psycopg.Error):
            for _ in range(50):  # each takes a new segment of the log
                with psycopg.connect(engine.database.admin_conninfo, autocommit=True) as connection:
                    connection.execute("SELECT pg_switch_wal()")
                    connection.execute("CREATE TABLE public.takes_room (a int)")
                    connection.execute("DROP TABLE public.takes_room")
        eventually(lambda: "shut down" in (disk / "data" / "log").read_text().splitlines()[-1], within_s=30)
        with pytest.raises(DatabaseUnavailable):
            engine.tenant("acme").ingest([_document(9)], prune=False)
    with pytest.raises(DatabaseUnavailable, match=r"its disk is full \(0 MB free\); make room") as caught:
        Engine(small, embedder=HashingEmbedder())
    assert "\n" not in str(caught.value)
    checks = {check.name: check for check in diagnose(small)}
    assert "its disk is full" in checks["database"].detail
    assert checks["disk"].detail.startswith("0 MB free at ")
    filler.unlink()
    with Engine(small, embedder=HashingEmbedder()) as engine:
        assert _is_whole(engine, stored)
        assert engine.tenant("acme").ingest([_document(9)], prune=False).new == 1


def test_worker__stopped_by_a_full_disk_loses_no_job(small: Settings, disk: Path, tmp_path: Path) -> None:
    """Jobs fail or the server goes, whichever comes first: with room, a worker that is started again does them all."""
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.txt").write_bytes(_document(number).data)
    settings = changed(small, {"worker.processes": 1, "worker.lease_s": 10.0, "worker.drain_s": 5.0})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").jobs.enqueue(folder)
        supervisor = _supervisor(settings)
        thread = threading.Thread(target=supervisor.run)
        thread.start()
        try:
            eventually(lambda: "No space left on device" in (disk / "data" / "log").read_text(), within_s=120)
        finally:
            supervisor.stop()
            thread.join()
    subprocess.run(["mount", "-o", f"remount,size={4 * SMALL_MB}m", str(disk)], check=True)
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        tenant = engine.tenant("acme")
        with psycopg.connect(engine.database.admin_conninfo) as connection:
            connection.execute("UPDATE kosmos.jobs SET run_at = now() WHERE state = 'scheduled' AND code = 'disk_full'")
        _supervisor(settings).run()
        assert tenant.jobs.find(states=[JobState.DEAD]) == []
        (run,) = tenant.jobs.runs()
        assert (run.seen, run.new, run.failed) == (40, 40, 0)
        assert len(tenant.sources()) == 40
        assert not any(count_orphans(engine.database, tenant._tenant).values())


def _supervisor(settings: Settings) -> Supervisor:
    return Supervisor(settings, kinds=[kinds.DOCUMENT, kinds.SYNC], create_runner=create_runner, until_idle=True)
