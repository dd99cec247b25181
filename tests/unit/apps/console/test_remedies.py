"""What the page of jobs says to do about a failure."""

import re
import uuid
from datetime import UTC, datetime
from pathlib import Path

from kosmos_rag.apps.http.console.remedies import describe_kind, remedy
from kosmos_rag.core.types import JobInfo, JobState
from kosmos_rag.storage.queue import kinds

DOCUMENTED = Path(__file__).parents[4] / "docs" / "parsing.md"
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


def test_remedies__are_given_for_every_documented_code() -> None:
    table = DOCUMENTED.read_text(encoding="utf-8").partition("| code | cause | remedy |")[2].partition("\n\n")[0]
    codes = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert len(codes) > 10
    general = remedy(_failed("no_such_code"))
    assert [code for code in codes if remedy(_failed(code)) == general] == []


def test_kinds__are_named_in_words() -> None:
    assert [kind for kind in kinds.ALL if describe_kind(kind) == kind] == []
