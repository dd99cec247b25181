"""Which questions ask for what is current, which documents are out of date, and what both do to a ranking."""

from datetime import date
from typing import Any

import pytest

from kosmos_rag.core.freshness import content_date, outdated_reason
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.freshness import ASKS_CURRENT, prefer_current
from tests.unit.retrieval.signals.passages import passage

TODAY = date(2026, 6, 15)


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("What is the current travel policy?", True),
        ("Which version is the latest?", True),
        ("How many days of leave do we get nowadays?", True),
        ("Is the 2019 rule still valid", True),
        ("an up-to-date list of suppliers", True),
        ("today's exchange rate", True),
        ("Was ist die aktuelle Reisekostenrichtlinie?", True),
        ("What is the travel policy?", False),
        ("electric current through a wire", False),
        ("current in the boundary layer", False),
        ("the current is induced by the field", False),
        ("concurrent requests", False),
        ("latestage", False),
    ],
)
def test_question__asks_for_what_is_current(question: str, asks: bool) -> None:
    assert (ASKS_CURRENT.search(question) is not None) == asks


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, None),
        ({"superseded_by": None, "valid_until": None}, None),
        ({"superseded_by": "new.md"}, "superseded by new.md"),
        ({"valid_until": "2026-06-14"}, "valid until 2026-06-14"),
        ({"valid_until": "2026-06-14T23:59:00+02:00"}, "valid until 2026-06-14"),
        ({"valid_until": "2026-06-15"}, None),
        ({"valid_until": "next year"}, None),
        ({"valid_until": 2020}, None),
    ],
)
def test_outdated_reason__is_of_documents_that_are_no_longer_in_force(
    metadata: dict[str, Any], reason: str | None
) -> None:
    assert outdated_reason(metadata, TODAY) == reason


def test_content_date__is_that_of_the_last_change() -> None:
    assert content_date({"date": "2024-01-31", "updated": "2025-02-01T10:00Z"}) == date(2025, 2, 1)
    assert content_date({"date": "2024-01-31", "updated": "soon"}) == date(2024, 1, 31)
    assert content_date({"date": 2024}) is None


def _make_hits(*metadata: dict[str, Any]) -> list[Passage]:
    return [passage(f"text {at}", source=f"{at}", metadata=item, score=1 - at / 20) for at, item in enumerate(metadata)]


def _order(passages: list[Passage]) -> list[str]:
    return [item.source for item in passages]


def test_outdated_passages__lose_half_of_their_score() -> None:
    hits = _make_hits({"superseded_by": "1"}, {}, {"valid_until": "2020-01-01"}, {"valid_until": "2030-01-01"})
    result = prefer_current(hits, "any question", TODAY)
    assert _order(result) == ["1", "3", "0", "2"]
    assert [item.signals for item in result] == [{}, {}, {"outdated": -0.5}, {"outdated": pytest.approx(-0.45)}]
    assert result[2].score == 0.5


def test_superseded_passages__come_after_what_supersedes_them() -> None:
    hits = [
        passage("first", source="v1", metadata={"superseded_by": "v2"}, score=1.0),
        passage("loop", source="loop", metadata={"superseded_by": "loop"}, score=0.9),
        passage("second", source="v2", metadata={"superseded_by": "v3"}, score=0.8),
        passage("gone", source="v0", metadata={"superseded_by": "nowhere"}, score=0.7),
        passage("third", source="v3", score=0.1),
    ]
    result = prefer_current(hits, "any question", TODAY)
    assert _order(result) == ["loop", "v0", "v3", "v1", "v2"]
    assert [item.score for item in result] == pytest.approx([0.45, 0.35, 0.1, 0.1, 0.1])


def test_new_passages__gain_where_the_question_asks_for_them() -> None:
    hits = _make_hits({"date": "2024-06-01"}, {}, {"date": "2025-12-01"}, {"updated": "2026-05-30"})
    result = prefer_current(hits, "What is the latest rule?", TODAY)
    assert _order(result) == ["3", "0", "2", "1"]
    assert result[0].signals == {"recency": pytest.approx(0.2 * 0.85)}
    assert result[2].signals == {"recency": pytest.approx(0.1 * 0.9)}
    assert prefer_current(hits, "What is the rule?", TODAY) == hits
    assert prefer_current(hits, "What was the latest rule in 2024?", TODAY) == hits
    same = _make_hits({"date": "2024-06-01"}, {}, {"date": "2024-06-01"})
    assert prefer_current(same, "What is the latest rule?", TODAY) == same


def test_quoted_phrases__stay_first() -> None:
    first, second = _make_hits({"superseded_by": "1"}, {})
    quoted = passage(first.text, source="0", metadata=first.metadata, score=1.0, score_contributions={"phrase": 1.0})
    assert _order(prefer_current([quoted, second], "a question", TODAY)) == ["0", "1"]
