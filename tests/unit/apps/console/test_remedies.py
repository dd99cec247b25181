"""What the page of jobs says to do about a failure."""

import uuid
from datetime import UTC, datetime
from pathlib import Path

from kosmos_rag.apps.http.console.remedies import ERROR_CODES, describe_kind, remedy
from kosmos_rag.core.errors import RETRY_WITH_BACKOFF
from kosmos_rag.core.types import JobInfo, JobState
from kosmos_rag.storage.queue import kinds
from kosmos_rag.wings import load_wing_jobs

PACKAGE = Path(__file__).parents[4] / "kosmos_rag"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _failed(code: str) -> JobInfo:
    return JobInfo(
        id=uuid.UUID(int=1),
        collection="default",
        kind=kinds.DOCUMENT,
        key="a",
        payload={},
        state=JobState.DEAD,
        priority=0,
        run_at=NOW,
        every_s=None,
        attempt=1,
        lost=0,
        worker=None,
        outcome=None,
        code=code,
        error="it failed",
        created_at=NOW,
        started_at=NOW,
        finished_at=NOW,
    )


def test_remedy__is_that_of_the_code() -> None:
    assert remedy(_failed("no_permission")) == "Give the worker access to the file, then retry."
    assert remedy(_failed("another")).startswith("Retry.")


def test_codes__are_those_that_the_package_raises() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path.name != "remedies.py")
    assert [code for code in ERROR_CODES if f'"{code}"' not in texts] == []


def test_failures__that_are_retried_by_themselves_are_among_the_codes() -> None:
    assert RETRY_WITH_BACKOFF - ERROR_CODES.keys() == {"internal"}


def test_kinds__are_named_in_words() -> None:
    assert [
        kind for kind in [*kinds.KERNEL, *(kind.name for kind in load_wing_jobs().kinds)] if describe_kind(kind) == kind
    ] == []
