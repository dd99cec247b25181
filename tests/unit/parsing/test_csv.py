"""CSV and TSV: each row can be read alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import OutputLimits, parse


def parse_csv(text: str, name: str = "a.csv") -> ParsedDocument:
    return parse(SourceDocument(source=name, data=text.encode()))


def test_parse_csv__a_row_says_which_column() -> None:
    parsed = parse_csv("name,city\nAda,London\nBob,\n\nEve,Paris\n")
    assert parsed.text == "name | city\nname: Ada; city: London\nname: Bob\n\nname: Eve; city: Paris"
    assert parsed.find_line(parsed.text.index("Eve")) == 5
    assert parsed.media_type == "text/csv"
    assert parsed.headings == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("item;price\npen;1,50\ncup;2,50\n", "a.csv"),
        ("item\tprice\npen\t1,50\ncup\t2,50\n", "a.csv"),
        ("item|price\npen|1,50\ncup|2,50\n", "a.csv"),
        ("item\tprice\npen\t1,50\ncup\t2,50\n", "a.tsv"),
        ('item,price\npen,"1,50"\ncup,"2,50"\n', "a.csv"),
    ],
)
def test_parse_csv__separators(text: str, name: str) -> None:
    assert parse_csv(text, name).text == "item | price\nitem: pen; price: 1,50\nitem: cup; price: 2,50"


def test_parse_csv__lines_above_the_header() -> None:
    text = "Sales of 2024,,\n,,\nRegion,Quarter,Sum\nNorth,1,12.5\n"
    assert parse_csv(text).text == "Sales of 2024\nRegion | Quarter | Sum\nRegion: North; Quarter: 1; Sum: 12.5"


@pytest.mark.parametrize("text", ["1,2\n3,4", "2024-01-05,3\n2024-01-06,4", "12 %,-3\n(4),1e5"])
def test_parse_csv__without_header_cells_stay_bare(text: str) -> None:
    assert parse_csv(text).text == text.replace(",", " | ")


def test_parse_csv__a_value_of_several_lines_stays_in_its_row() -> None:
    assert parse_csv('name,note\nAda,"one\ntwo"\n').text == "name | note\nname: Ada; note: one two"


def test_parse_csv__more_cells_than_names() -> None:
    assert parse_csv("name,city\nAda,London,extra\n").text == "name | city\nname: Ada; city: London; extra"


@pytest.mark.parametrize("text", ['a,b\n"never closed,1\n2,3', 'a,b\n"x"y,1', 'a,b\n"' + "x" * 200_000])
def test_parse_csv__what_is_no_table_keeps_its_lines(text: str) -> None:
    assert parse_csv(text).text == text


def test_parse_csv__long_column_names_are_not_repeated_without_end() -> None:
    parsed = parse_csv(f"{'name ' * 1000},city\n" + "Ada,London\n" * 100)
    assert len(parsed.text) < 20_000


def test_parse_csv__stops_at_the_limit_of_text() -> None:
    data = b"a_long_column_name,another\n" + b"1,2\n" * 1000
    with pytest.raises(ParseError, match=r"ingestion\.parsing\.text_mb") as caught:
        parse(SourceDocument(source="a.csv", data=data), OutputLimits(text_bytes=20_000))
    assert caught.value.code == "too_large"


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1), min_size=2),
        min_size=1,
    )
)
def test_parse_csv__keeps_every_value(rows: list[list[str]]) -> None:
    text = "\n".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)
    parsed = parse_csv(text)
    assert all(cell.strip("|:") in parsed.text for row in rows for cell in row)
