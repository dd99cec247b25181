"""Faults that are planted in the project, to show that the simulation finds them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from kosmos_rag.core.errors import LeaseLost
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.ingestion import permissions
from kosmos_rag.ingestion.publisher import Publisher
from kosmos_rag.storage import sql
from kosmos_rag.storage.erasure import ErasureStore
from kosmos_rag.storage.permissions import StoredPermissions
from kosmos_rag.storage.queue.writing import JobLeases
from kosmos_rag.storage.tenants import TenantRef
from tests.simulation.simulation import ListCasts, list_feed_casts, list_tenant_casts

Plant = Callable[[pytest.MonkeyPatch], None]


def _replace(patch: pytest.MonkeyPatch, name: str, before: str, after: str) -> None:
    """Replace a part of a statement."""
    text = sql._STATEMENTS.texts[name]
    assert before in text, f"{name} has no {before!r} any more"
    patch.setitem(sql._STATEMENTS.texts, name, text.replace(before, after))


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    """A worker that has lost its lease writes its result."""
    finish = JobLeases.finish

    def finish_any(*args: Any) -> None:
        with suppress(LeaseLost):
            finish(*args)

    patch.setitem(sql._STATEMENTS.texts, "lock_leases", "SELECT u.token FROM unnest(%(tokens)s::uuid[]) AS u (token)")
    patch.setattr(JobLeases, "finish", finish_any)


def _stale_epoch(patch: pytest.MonkeyPatch) -> None:
    """What readers may see changes without a new identity of this state, which caches are keyed by."""
    _replace(patch, "update_acl_statistics", "state = excluded.state", "state = s.state")


def _missing_lock(patch: pytest.MonkeyPatch) -> None:
    """Two publications into a collection run at the same time."""
    _replace(patch, "lock_collection", "FOR UPDATE", "")


def _open_feed(patch: pytest.MonkeyPatch) -> None:
    """A document that a feed names no more keeps its readers."""
    resolve = permissions._plan

    def plan_named(current: Any, stored: StoredPermissions, acls: Mapping[Any, Any], files: Any) -> Any:
        feeds = {key: feed for key, feed in stored.feeds.items() if key in acls}
        return resolve(current, replace(stored, feeds=feeds), acls, files)

    patch.setattr(permissions, "_plan", plan_named)


def _event_before_commit(patch: pytest.MonkeyPatch) -> None:
    """A job is done before its document is committed."""

    @contextmanager
    def open_transactions(
        publisher: Publisher, tenant: TenantRef
    ) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
        worker = publisher._database.worker
        with worker.transaction(tenant.id, [EVERYONE]) as data, worker.untenanted() as jobs:
            yield data, jobs

    patch.setattr(Publisher, "_transaction", open_transactions)


def _unlocked_generation(patch: pytest.MonkeyPatch) -> None:
    """A pass of a feed starts while an earlier one writes."""
    _replace(patch, "permission_feed_generation", "FOR SHARE", "")


def _early_selection(patch: pytest.MonkeyPatch) -> None:
    """An erasure selects documents before it waits for the jobs that write them, and not after."""

    def erase_jobs(
        store: ErasureStore, connection: psycopg.Connection, values: dict[str, Any]
    ) -> tuple[Any, list[Any]]:
        rows = store._select_documents(connection, values)
        connection.execute(sql.statement("erase_document_jobs"), values)
        return rows, []

    patch.setattr(ErasureStore, "_erase_jobs", erase_jobs)


def _unlocked_tenant(patch: pytest.MonkeyPatch) -> None:
    """An erasure of a tenant deletes its rows while a publication creates it again."""
    _replace(patch, "lock_tenant", "FOR UPDATE", "")


PLANTED: dict[str, Plant] = {
    "no fence": _no_fence,
    "stale epoch": _stale_epoch,
    "missing lock": _missing_lock,
    "feed not closed": _open_feed,
    "event before commit": _event_before_commit,
    "unlocked tenant": _unlocked_tenant,
    "unlocked generation": _unlocked_generation,
    "early selection": _early_selection,
}
"""The last two were faults of this project."""
CASTS: dict[str, ListCasts] = {"unlocked generation": list_feed_casts, "unlocked tenant": list_tenant_casts}
"""Who must meet to find a fault; where it is not here, all kinds of actors."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a fault within a block."""
    with pytest.MonkeyPatch.context() as patch:
        PLANTED[name](patch)
        sql.statement.cache_clear()
        try:
            yield
        finally:
            patch.undo()
            sql.statement.cache_clear()
