"""Export the audit log of a tenant to a target, each event at least once."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kosmos_rag.core.errors import RequestError
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.siem.ocsf import convert_erasure, convert_record
from kosmos_rag.siem.targets import EventTarget, ExportError

_BATCH = 500


@dataclass(frozen=True, slots=True)
class ExportCursor:
    """What a target has of a tenant."""

    position: int = 0
    """Of the last audit record."""
    erasure: int = 0
    """Number of the last erasure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportReport:
    """What became of the events of an export."""

    exported: int
    refused: int
    """Refused by the target forever, and skipped."""


def export_audit(tenant: Tenant, target: EventTarget, state: Path) -> ExportReport:
    """Send what the target does not have yet.

    The file of the state is written after the target has taken a batch: after a crash a batch may be sent twice, and
    each event keeps its `metadata.uid`.

    Args:
        state: A file with the cursor of each tenant; it is created.

    Raises:
        ExportError: The target does not take the events.
        RequestError: Another export uses the file, it is not one of an export, or cannot be written.
        ConfigError: `database.worker_url` is not set.
        DatabaseError: The log cannot be read.
    """
    try:
        with _lock(state):
            return _send_new(tenant, target, state)
    except ExportError as error:
        raise ExportError(
            f"{error}; run the command again when the target works: it continues after the last events that were taken"
        ) from error
    except OSError as error:
        raise RequestError(f"{state} cannot be used: {error.strerror}; name another file with --state") from error


def _send_new(tenant: Tenant, target: EventTarget, state: Path) -> ExportReport:
    count = refused = 0
    cursors = _read(state)
    cursor = cursors.get(tenant.name, ExportCursor())
    while records := tenant.audit.list_sealed(after=cursor.position, limit=_BATCH):
        refused += target.write([convert_record(tenant.name, record) for _, record in records])
        cursor = replace(cursor, position=records[-1][0])
        _write(state, {**cursors, tenant.name: cursor})
        count += len(records)
    if erasures := tenant.audit.list_erasures(after=cursor.erasure):
        refused += target.write([convert_erasure(tenant.name, erasure) for erasure in erasures])
        _write(state, {**cursors, tenant.name: replace(cursor, erasure=erasures[-1].number)})
        count += len(erasures)
    return ExportReport(exported=count - refused, refused=refused)


@contextmanager
def _lock(state: Path) -> Iterator[None]:
    """Hold the lock of a state. Raises RequestError where another process holds it."""
    with state.with_name(f"{state.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RequestError(f"another export uses {state}; wait until it ends, or name another file") from error
        yield


def _read(state: Path) -> dict[str, ExportCursor]:
    try:
        content = json.loads(state.read_text(encoding="utf-8"))
        return {name: ExportCursor(**cursor) for name, cursor in content.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise RequestError(f"{state} is not the state of an export; name another file with --state") from error


def _write(state: Path, cursors: dict[str, ExportCursor]) -> None:
    """Replace the file of the state, on disk when this returns."""
    new = state.with_name(f"{state.name}.new")
    with new.open("w", encoding="utf-8") as file:
        json.dump({name: asdict(cursor) for name, cursor in cursors.items()}, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(state)
    folder = os.open(state.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
