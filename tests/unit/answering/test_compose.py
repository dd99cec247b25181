"""Which units make an answer, how it reads, and what its citations point at."""

import hashlib
from dataclasses import replace

import pytest

from kosmos_rag.answering.compose import render, select, sentence
from kosmos_rag.answering.evidence import Evidence
from kosmos_rag.answering.units import units
from kosmos_rag.core.types import Citation, ContextPassage
from tests.unit.answering.passages import passage

TWO = passage("Churn is loss. It is counted monthly.\n\n```sql\nselect 1 from t;\n```\n", index=1, start=7, line=3)
OTHER = passage("Refunds are not churn.", index=2)


def _evidence(of: ContextPassage, scores: list[float]) -> list[Evidence]:
    return [
        Evidence(passage=of, unit=unit, parts={"meaning": score}, words=0.0)
        for unit, score in zip(units(of.text), scores, strict=True)
    ]


def test_select__takes_the_best_unit_first_and_others_that_are_about_as_good() -> None:
    chosen = select(_evidence(TWO, [0.70, 0.1, 0.75]) + _evidence(OTHER, [0.8]), limit=4)
    assert [item.unit.text[:7] for item in chosen] == ["Refunds", "```sql\n", "Churn i"]
    assert len(select(_evidence(TWO, [0.6, 0.1, 0.65]) + _evidence(OTHER, [0.8]), limit=4)) == 1


def test_select__takes_no_more_than_asked() -> None:
    assert [round(item.score, 6) for item in select(_evidence(TWO, [0.78, 0.9, 0.8]), limit=2)] == [0.9, 0.8]


def test_select__says_nothing_twice() -> None:
    again = passage("Churn is  loss.", index=2)
    chosen = select(_evidence(TWO, [0.8, 0.1, 0.1]) + _evidence(again, [0.79]), limit=4)
    assert [item.passage.citation.index for item in chosen] == [1]


def test_select__says_a_sentence_once_that_the_next_one_refers_to() -> None:
    first, second, _ = _evidence(TWO, [0.9, 0.85, 0.1])
    chosen = select([first, replace(second, previous=first.unit)], limit=4)
    assert [item.unit.text for item in chosen] == ["Churn is loss. It is counted monthly."]
    assert render([sentence(item) for item in chosen]) == "Churn is loss. [1] It is counted monthly. [1]"


@pytest.mark.parametrize(
    ("text", "is_joined"),
    [
        ("Group adm is for monitoring. Members of this group can read logs.", True),
        ("Die Gruppe adm ist da. Mitglieder dieser Gruppe lesen Protokolle.", True),
        ("A file sets values. Additionally, it is not read in global mode.", True),
        ("Group adm is for monitoring. Members of this team can read logs.", False),
        ("A file sets values. Additionally, logs are not read.", False),
    ],
)
def test_select__joins_a_sentence_to_the_one_it_refers_to(text: str, is_joined: bool) -> None:
    first, second = _evidence(passage(text), [0.1, 0.9])
    (chosen,) = select([first, replace(second, previous=first.unit)], limit=1)
    assert (chosen.unit.text == text) is is_joined


def test_select__leaves_out_code_that_names_less_of_the_question() -> None:
    first, second, code = _evidence(TWO, [1.7, 0.1, 1.8])
    fitting, weak = replace(code, words=0.9), replace(code, words=0.5)
    for candidate, expected in ((fitting, ["```sql\n", "Churn i"]), (weak, ["Churn i"])):
        chosen = select([replace(first, words=1.0), second, candidate], limit=4)
        assert [item.unit.text[:7] for item in chosen] == expected


def _outdated(text: str, *, index: int) -> ContextPassage:
    current = passage(text, index=index)
    return replace(current, citation=replace(current.citation, outdated="superseded by new.md"))


def test_select__leaves_out_what_a_current_document_answers_as_well() -> None:
    old = _evidence(_outdated("Leave is 25 days.", index=1), [0.9])
    new = _evidence(passage("Leave is 28 days.", index=2), [0.85])
    assert [item.unit.text for item in select(old + new, limit=4)] == ["Leave is 28 days."]
    both = select(old + new, limit=4, prefer_current=False)
    assert [item.unit.text for item in both] == ["Leave is 25 days.", "Leave is 28 days."]


def test_select__takes_only_good_units_beside_those_of_an_outdated_document() -> None:
    old = _evidence(_outdated("Leave is 25 days.", index=1), [0.9])
    unrelated = _evidence(passage("Lunch is at noon.", index=2), [0.5])
    assert [item.unit.text for item in select(old + unrelated, limit=4)] == ["Leave is 25 days."]


def test_sentence__cites_its_very_span_and_lines() -> None:
    document = "1234567" + TWO.text
    for item in _evidence(TWO, [1, 1, 1]):
        message = sentence(item)
        cited = message.citation
        assert document[cited.start : cited.end] == message.text == item.unit.text
        assert cited.quote_sha256 == hashlib.sha256(message.text.encode()).hexdigest()
        assert cited.version_id == TWO.citation.version_id
    assert (cited.line_start, cited.line_end) == (5, 7)


def test_sentence__of_a_passage_that_cites_a_part_of_its_text() -> None:
    document = "# Churn\n\nFirst.\n\nChurn is loss.\n\n- of\n- all\n"
    piece = passage("Churn is loss.", start=17, line=5)
    section = replace(piece, text=document[9:], start=9, page_start=1, page_end=2)
    assert section.quote == piece.text
    for item in _evidence(section, [1, 1, 1, 1]):
        cited = sentence(item).citation
        assert document[cited.start : cited.end] == item.unit.text
        assert document.split("\n")[cited.line_start - 1] == item.unit.text
        assert cited.quote_sha256 == hashlib.sha256(item.unit.text.encode()).hexdigest()
        assert (cited.page_start, cited.page_end) == (1, 2)


def test_sentence__has_the_pages_that_it_stands_on() -> None:
    text = "First.\n\nSecond goes\nover.\n\nLast."
    section = replace(passage(text, start=100), page_start=3, page_end=5)
    whole = [(cited.page_start, cited.page_end) for cited in _cited(section)]
    assert whole == [(3, 5)] * 3
    breaks = (100 + text.index("goes"), 100 + text.index("Last"))
    apart = [(cited.page_start, cited.page_end) for cited in _cited(replace(section, page_breaks=breaks))]
    assert apart == [(3, 3), (3, 4), (5, 5)]


def _cited(of: ContextPassage) -> list[Citation]:
    return [sentence(item).citation for item in _evidence(of, [1, 1, 1])]


def test_render__marks_every_sentence_and_keeps_sql_as_sql() -> None:
    sentences = [sentence(item) for item in _evidence(TWO, [1, 1, 1]) + _evidence(OTHER, [1])]
    assert render(sentences) == (
        "Churn is loss. [1] It is counted monthly. [1]\n\n```sql\nselect 1 from t;\n```\n\n[1]\n\n"
        "Refunds are not churn. [2]"
    )


def test_render__keeps_rows_and_items_on_lines_of_their_own() -> None:
    listed = passage("- one\n- two\n\n| a     | b |\n| c | d |")
    sentences = [sentence(item) for item in _evidence(listed, [1, 1, 1, 1])]
    assert render(sentences) == "- one [1]\n- two [1]\n\n| a | b | [1]\n| c | d | [1]"


def test_render__names_the_columns_of_each_row() -> None:
    text = "| Team | Owns |\n|---|---|\n| Data | |\n| Finance | Cash \\| revenue |\n\n| x | y |"
    sentences = [sentence(item) for item in _evidence(passage(text), [1, 1, 1])]
    assert render(sentences) == "- Team: Data [1]\n- Team: Finance; Owns: Cash \\| revenue [1]\n\n| x | y | [1]"
    assert [entry.columns for entry in sentences] == [("Team", "Owns"), ("Team", "Owns"), ()]


def test_columns__of_a_table_that_begins_above_the_passage_come_from_its_context() -> None:
    below = passage("| Data | Silver |\n\n| x | y |")
    cited = replace(below.citation, table_context=("Teams", "Team | Owns"))
    sentences = [sentence(item) for item in _evidence(replace(below, citation=cited), [1, 1])]
    assert [entry.columns for entry in sentences] == [("Team", "Owns"), ()]
