"""The sources below an answer on the command line."""

import uuid
from dataclasses import replace

from kosmos_rag.apps.cli.ask import _cited_lines
from kosmos_rag.core.types import Citation

FIRST = Citation(
    index=1, marker="[1]", document_id=uuid.uuid4(), version_id=uuid.uuid4(), version=1, title="Leave",
    source="leave.md", section=("Leave", "Days"), start=0, end=9, line_start=5, line_end=5,
    page_start=None, page_end=None, quote_sha256="0",
)  # fmt: skip


def test_cited_lines__have_each_section_once_with_all_its_lines() -> None:
    other = replace(FIRST, index=2, marker="[2]", section=("Notice",))
    citations = [FIRST, replace(FIRST, line_start=8, line_end=9), FIRST, other]
    assert _cited_lines(citations) == ["[1] leave.md | Days | L5, L8 to L9", "[2] leave.md | Notice | L5"]


def test_cited_lines__name_the_link_where_the_source_has_one() -> None:
    linked = replace(FIRST, link="https://git.example.org/h/leave.md#L5-L5")
    assert _cited_lines([linked]) == ["[1] https://git.example.org/h/leave.md#L5-L5 | Days | L5"]
