"""The scores of the benchmark of real pages, on texts that are wrong in one way each."""

from typing import Any

import pytest

from benchmarks.page_descriptions import DescribedPage, DescribedTable, Labels, Passage
from benchmarks.page_scores import PageScore, ReadPage, score_page

PAGE = DescribedPage(
    file="a.pdf",
    number=1,
    elements=[
        Passage(kind="h", begin="Offices and depots", end=""),
        Passage(kind="p", begin="The office moves", end="in the autumn."),
        Labels(pairs=[("Age:", "3 years")]),
        DescribedTable(names=["", "2024 / People"], rows=[["Graz", "12"], ["Linz", "15"]], with_text=False),
        Passage(kind="p", begin="Boxes are collected on Friday.", end=""),
    ],
)
TEXTS = ("Offices and depots", "The office moves\nin the autumn.", "Age: 3 years", "Boxes are collected on Friday.")
TABLE = "Graz; 2024 / People: 12\nLinz; 2024 / People: 15"
TEXT = "\n\n".join([*TEXTS[:3], TABLE, TEXTS[3]])


def score(text: str = TEXT, **content: Any) -> PageScore:
    return score_page(PAGE, ReadPage(text=text, **{"headings": ["Offices and depots"], "tables": [TABLE], **content}))


def test_score_page__a_right_page() -> None:
    result = score()
    assert result.is_right, result.faults
    assert (result.order, result.breaks, result.heading_f1, result.cell_f1) == (1.0, 1.0, 1.0, 1.0)


def test_score_page__the_markdown_of_other_parsers() -> None:
    table = "|  | **People** |\n|---|---|\n| Graz | 12 |\n| Linz | 15 |"
    text = TEXT.replace(TABLE, table).replace("Offices", "# Offices")
    result = score(text, tables=[table])
    assert result.is_right, result.faults


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ("The office moves\nin", "The office moves\n\nin", "false_breaks"),
        ("autumn.\n\nAge: 3 years\n\n", "autumn.\n\n", "cells"),
        ("depots\n\nThe", "depots The", "missing_breaks"),
        ("people: 15", "people: 16", "cells"),
    ],
)
def test_score_page__a_text_with_one_fault(before: str, after: str, part: str) -> None:
    text = TEXT.replace("People: 15", "people: 15").replace(before, after)
    result = score(text)
    assert not result.is_right
    assert result.cell_f1 < 1 if part == "cells" else getattr(result, part) == 1


def test_score_page__paragraphs_out_of_order() -> None:
    first, *rest = TEXT.split("\n\n")
    assert score("\n\n".join([*rest, first])).order == 0.8


def test_score_page__a_value_under_the_name_of_another_column() -> None:
    assert score(TEXT.replace("2024 / People: 15", "Boxes: 15")).false_names == 1


def test_score_page__a_table_with_a_paragraph_in_it_is_invented() -> None:
    assert score(tables=[TABLE, "Boxes are collected | on Friday."]).invented_tables == 1


def test_score_page__headings_too_few_and_too_many() -> None:
    assert score(headings=[]).heading_f1 == 0.0
    assert score(headings=["Offices and depots", "Linz"]).heading_f1 == pytest.approx(2 / 3)
