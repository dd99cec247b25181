"""What the page of jobs says to do about a failure."""

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from kosmos_rag.apps.http.console.remedies import _REMEDIES, describe_kind, remedy
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import JobInfo, JobState
from kosmos_rag.storage.queue import kinds
from kosmos_rag.wings import load_wing_jobs

DOCS = Path(__file__).parents[4] / "docs"
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


def _documented() -> Iterator[tuple[str, str, bool]]:
    """Yield code, remedy and whether it is retried, from the tables of both pages, without their markup."""
    for page in ("parsing.md", "sources.md"):
        table = (DOCS / page).read_text(encoding="utf-8").partition("| code | cause | remedy | retried |")[2]
        for codes, _, text, retried in re.findall(r"^\| (.+) \| (.+) \| (.+) \| (yes|no) \|$", table, re.MULTILINE):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "")
            for code in re.findall(r"`(\w+)`", codes):
                yield code, plain, retried == "yes"


def test_remedies__are_those_of_the_documentation() -> None:
    documented = list(_documented())
    remedies = {code: text for code, text, _ in documented}
    assert len(remedies) == len(documented) > 20  # each code in one row
    assert {code: remedy(_failed(code)) for code in remedies} == remedies
    assert set(_REMEDIES) == set(remedies)


def test_codes__are_documented_as_retried_where_they_are() -> None:
    for code, _, retried in _documented():
        assert IngestionError(code, "it failed").retryable == retried, code


def test_kinds__are_named_in_words() -> None:
    assert [
        kind for kind in [*kinds.KERNEL, *(kind.name for kind in load_wing_jobs().kinds)] if describe_kind(kind) == kind
    ] == []
