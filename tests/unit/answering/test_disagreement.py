"""Sentences of different documents that disagree."""

from dataclasses import replace
from datetime import date

from kosmos_rag.answering.compose import sentence
from kosmos_rag.answering.disagreement import find_disagreements
from kosmos_rag.answering.evidence import Evidence
from kosmos_rag.answering.units import units
from kosmos_rag.core.types import AnswerSentence
from tests.unit.answering.passages import passage


def _say(text: str, index: int, day: date | None = None, outdated: str | None = None) -> AnswerSentence:
    of = passage(text, index=index)
    of = replace(of, citation=replace(of.citation, date=day, outdated=outdated))
    return sentence(Evidence(passage=of, unit=next(units(text)), parts={"meaning": 0.5, "words": 0.5}, words=0.5))


OLD = _say("Refunds are paid within 30 days.", 1, date(2024, 3, 1), "superseded by new.md")


def test_find_disagreements__names_both_documents_with_their_dates() -> None:
    new = _say("Refunds are paid within 14 days of the claim.", 2, date(2026, 1, 5))
    assert find_disagreements([OLD, new]) == (
        "the documents disagree: [1] says 30 days (2024-03-01, superseded by new.md), [2] says 14 days (2026-01-05)",
    )


def test_find_disagreements__is_silent_where_documents_agree_or_speak_of_other_things() -> None:
    for other in (
        _say("Refunds are paid within 30 days by Finance.", 2),
        _say("Refunds are paid within 4 weeks.", 2),
        _say("Parental leave lasts 14 days.", 2),
        _say("Refunds are paid within 14 days.", 1),
        _say("Refunds are paid by Finance.", 2),
    ):
        assert find_disagreements([OLD, other]) == ()
