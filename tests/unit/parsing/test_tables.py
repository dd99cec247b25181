"""The model of tables: header rows, names of columns, rows that can be read alone."""

import time

import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing import OutputLimits
from kosmos_rag.parsing.tables.builder import Cell, TableBuilder
from kosmos_rag.parsing.tables.forms import split_form
from kosmos_rag.parsing.tables.sheets import Sheet, split_sheet
from kosmos_rag.parsing.tables.table import Table, TableText, render


def split_rows(lines: str) -> list[list[str]]:
    """Read a grid of `a|b` lines."""
    return [[cell.strip() for cell in line.split("|")] for line in lines.strip("\n").split("\n")]


def rendered(table: Table) -> TableText:
    return render(table, OutputLimits())


def render_text(lines: str, **fields: object) -> str:
    return rendered(Table(rows=split_rows(lines), **fields)).text  # type: ignore[arg-type]


def last_line(lines: str, **fields: object) -> str:
    return render_text(lines, **fields).split("\n")[-1]


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        ("Plan|Seats|Price\nPlan 45|315|4500", "Plan: Plan 45; Seats: 315; Price: 4500"),
        ("Region|2022|2023\nNorth|12|13\nSouth|1950|7", "Region: South; 2022: 1950; 2023: 7"),
        ("Region|2023|2024|Sum\nNorth|1999|1|2000", "Region: North; 2023: 1999; 2024: 1; Sum: 2000"),
        ("|2022|2023\nNorth|12|13", "North; 2022: 12; 2023: 13"),
        ("Age|30 days|60 days\nOpen|12.5|3", "Age: Open; 30 days: 12.5; 60 days: 3"),
        ("Hour|1|2|3\nMon|7|8|1", "Hour: Mon; 1: 7; 2: 8; 3: 1"),
        ("Centile|10%|50%\nWage|1200|2400", "Centile: Wage; 10%: 1200; 50%: 2400"),
        ("Site|2024-01-31|2024-02-29\nA|1|2", "Site: A; 2024-01-31: 1; 2024-02-29: 2"),
        ("Name|Note\nAda|", "Name: Ada"),
        ("Name|Sum\nAda|1|extra", "Name: Ada; Sum: 1; extra"),
    ],
)
def test_render__the_header_is_found_by_the_kinds_below_it(lines: str, last: str) -> None:
    assert last_line(lines) == last


def test_render__names_with_a_colon_are_of_rows() -> None:
    lines = "Number:|2024-117|Supplier Inc\nDate:|03.05.2024|\nCustomer:|Example Ltd|"
    assert render_text(lines) == "Number: 2024-117 | Supplier Inc\nDate: 03.05.2024\nCustomer: Example Ltd"


@pytest.mark.parametrize(
    "lines", ["1|2\n3|4", "Ada|36|London\nBob|41|Paris", "2024-01-05|3\n2024-01-06|4", "A|1|2|3\nB|4|5|6"]
)
def test_render__a_first_row_of_values_is_no_header(lines: str) -> None:
    assert render_text(lines) == lines.replace("|", " | ")


@pytest.mark.parametrize(
    ("lines", "spans", "header"),
    [
        ("Region|2022||2023|\n|Q1|Q2|Q1|Q2\nN|1|2|3|4", {}, "Region | 2022 / Q1 | 2022 / Q2 | 2023 / Q1 | 2023 / Q2"),
        ("||2022||2023\nRegion|Q1|Q2|Q1|Q2\nN|1|2|3|4", {}, "Region | 2022 / Q1 | 2022 / Q2 | 2023 / Q1 | 2023 / Q2"),
        ("|2022||2023\nRegion|Q1|Q2|Q1|Q2\nN|1|2|3|4", {}, "Region | 2022 / Q1 | 2022 / Q2 | 2023 / Q1 | 2023 / Q2"),
        ("|2022||2023|\nRegion|Q1|Q2|Q1|Q2\nN|1|2|3|4", {}, "Region | 2022 / Q1 | 2022 / Q2 | 2023 / Q1 | 2023 / Q2"),
        ("Plan|Cost||Note\nPlan|Net|Gross|Note\nA|1|2|x", {(0, 1): 2}, "Plan | Cost / Net | Cost / Gross | Note"),
        ("Item|Weight|Price\n|(kg)|(EUR)\nA|1|2", {}, "Item | Weight (kg) | Price (EUR)"),
        ("Name||City\nAda|x|London\nBob|y|Paris", {}, "Name |  | City"),
    ],
)
def test_render__header_rows_are_joined(lines: str, spans: dict[tuple[int, int], int], header: str) -> None:
    assert render_text(lines, spans=spans).split("\n")[0] == header


def test_render__title_rows_are_the_caption() -> None:
    table = rendered(Table(rows=split_rows("Sales|\nin EUR|\nRegion|Sum\nNorth|1"), caption="Table 1"))
    assert table.text == "Table 1\nSales\nin EUR\nRegion | Sum\nRegion: North; Sum: 1"
    assert table.context == ("Table 1 Sales in EUR", "Region | Sum")


@pytest.mark.parametrize(
    "lines", ["Name|Ada\nBorn|1815\nField|maths\nHeight|165 cm", "Invoice:|A-7\nTotal:|12.50", "Port:|80\nHost:|a"]
)
def test_render__a_table_of_pairs_names_its_rows(lines: str) -> None:
    assert render_text(lines) == lines.replace(":|", "|").replace("|", ": ")


def test_render__a_cell_across_columns_has_the_names_of_all() -> None:
    spans = {(1, 1): 2, (2, 0): 3}
    text = render_text("Day|Morning|Evening\nMon|closed\nHolidays\nTue|8|9", header_rows=1, spans=spans)
    assert text.split("\n")[1:] == [
        "Day: Mon; Morning, Evening: closed",
        "Holidays",
        "Day: Tue; Morning: 8; Evening: 9",
    ]


def test_render__long_names_are_cut() -> None:
    table = rendered(Table(rows=[["name " * 100 + str(column) for column in range(50)], ["1"] * 50], header_rows=1))
    assert len(table.text.split("\n")[1]) < 50 * 70
    assert len(table.context[0]) <= 500


def test_render__stops_at_the_limit_of_text() -> None:
    with pytest.raises(ParseError, match="text_mb"):
        render(Table(rows=[["x" * 10, "y"]] * 100), OutputLimits(text_bytes=500))


def parts(lines: str) -> list[str]:
    """Divide a sheet; a part is the rendered table, or the text."""
    sheet = split_sheet(Sheet(rows=split_rows(lines)))
    return [rendered(part).text if isinstance(part, Table) else f"text: {part.text}" for part in sheet]


def test_split_sheet__blank_rows_part_tables() -> None:
    assert parts("Plan|Price\nA|1\n|\nCity|Rooms\nRome|7") == [
        "Plan | Price\nPlan: A; Price: 1",
        "City | Rooms\nCity: Rome; Rooms: 7",
    ]


def test_split_sheet__blank_columns_part_tables() -> None:
    assert parts("Plan|Price||City|Rooms\nA|1||Rome|7\nB|2||Oslo|9") == [
        "Plan | Price\nPlan: A; Price: 1\nPlan: B; Price: 2",
        "City | Rooms\nCity: Rome; Rooms: 7\nCity: Oslo; Rooms: 9",
    ]


def test_split_sheet__a_blank_column_within_a_table() -> None:
    assert parts("Region|Unit||2023|2024\nNorth|t||1|2\nSouth|t||3|4")[0].split("\n")[1] == (
        "Region: North; Unit: t; 2023: 1; 2024: 2"
    )


@pytest.mark.parametrize("gap", ["|", "|\n|\n|"])
def test_split_sheet__values_below_a_gap_continue_the_table(gap: str) -> None:
    assert parts(f"Region|Sum\nNorth|1\nSouth|2\n{gap}\nTotal|3") == [
        "Region | Sum\nRegion: North; Sum: 1\nRegion: South; Sum: 2\n\nRegion: Total; Sum: 3"
    ]


def test_split_sheet__many_blocks_and_merged_cells_take_linear_time() -> None:
    started = time.process_time()
    lines = [["Region", "Sum", "Share"], *([["North", "1", "2"], []] * 5_000)]
    (table,) = split_sheet(Sheet(rows=lines, spans={(row, 0): 2 for row in range(0, 10_000, 4)}))
    assert isinstance(table, Table)
    assert len(table.rows) == 10_000
    apart = Sheet(rows=[["a", "b"], ["1", "2"], []] * 4_000, spans={(row, 0): 2 for row in range(12_000)})
    assert len(list(split_sheet(apart))) > 1
    assert time.process_time() - started < 5


def test_split_sheet__a_header_apart_from_its_values() -> None:
    assert parts("Region|Sum\n|\nNorth|1\nSouth|2")[0].endswith("Region: South; Sum: 2")


def test_split_sheet__titles_and_notes() -> None:
    assert parts(
        "Sales\n|\nRegion|Sum|Share\nNorth|1|1 %\nSource: the office||\n|\nNote: late\n|\nCity|Rooms\nRome|7"
    ) == [
        "Sales\nRegion | Sum | Share\nRegion: North; Sum: 1; Share: 1 %",
        "text: Source: the office",
        "text: Note: late",
        "City | Rooms\nCity: Rome; Rooms: 7",
    ]


def test_table_builder__merged_cells_keep_the_columns() -> None:
    builder = TableBuilder()
    builder.add_row([Cell(text="Region", rows=2), Cell(text="2024", columns=2)])
    builder.add_row([Cell(text="Q1"), Cell(text="Q2")])
    builder.add_row([Cell(text="North", rows=2), Cell(text="1"), Cell(text="2")])
    builder.add_row([Cell(text="3"), Cell(text="4")])
    assert rendered(builder.build()).text == (
        "Region | 2024 / Q1 | 2024 / Q2\nRegion: North; 2024 / Q1: 1; 2024 / Q2: 2\n"
        "Region: North; 2024 / Q1: 3; 2024 / Q2: 4"
    )


def test_table_builder__what_is_repeated_is_short() -> None:
    builder = TableBuilder()
    builder.add_row([Cell(text="long " * 1000, rows=65_534), Cell(text="1")])
    for _ in range(1000):
        builder.add_row([Cell(text="2")])
    assert len(rendered(builder.build()).text) < 5_000 + 1_000 * 110


def test_table_builder__refuses_spans_without_end() -> None:
    builder = TableBuilder()
    builder.add_row([Cell(text="a", columns=10**9, rows=10**9), Cell(text="b", rows=10**9)])
    with pytest.raises(ParseError, match="merged cells") as caught:
        [builder.add_row([]) for _ in range(2_000)]
    assert caught.value.code == "too_large"


def render_form(*rows: list[tuple[str, int]]) -> list[str]:
    """Read rows of texts with the number of their columns, and render the tables."""
    builder = TableBuilder()
    for row in rows:
        builder.add_row(Cell(text=text, columns=columns) for text, columns in row)
    return [rendered(part).text for part in split_form(builder.build())]


def test_split_form__takes_linear_time() -> None:
    started = time.process_time()
    list(split_form(Table(rows=[["word"] * 10_000] * 40)))
    assert time.process_time() - started < 4


CODES = [[("Code", 1), ("Item", 1), ("Class", 1)], [("0410", 1), ("0610", 1), ("226", 1)]]


def test_split_form__labels_and_values_above_a_table() -> None:
    form, table = render_form(
        [("Subject", 1), ("Fitting of cameras", 2)],
        [("Sum", 1), ("39,921.00 EUR", 2)],
        [("Date: 3 May 2026", 3)],
        [("Funding: city budget", 2), ("Year: 2026", 1)],
        *CODES,
    )
    assert form.split("\n") == [
        *("Subject: Fitting of cameras", "Sum: 39,921.00 EUR", "Date: 3 May 2026", "Funding: city budget | Year: 2026"),
    ]
    assert table.split("\n")[1] == "Code: 0410; Item: 0610; Class: 226"


def test_split_form__a_form_alone() -> None:
    assert render_form([("Name", 1), ("Ada", 2)], [("Born", 1), ("1815", 2)]) == ["Name: Ada\nBorn: 1815"]


def test_split_form__pairs_of_words_above_a_wider_table() -> None:
    rows = [["Invoice", "", ""], ["Customer", "Huber", ""], ["City", "Graz", ""]]
    rows += [["No", "Item", "Pieces"], ["1", "Tent", "2"], ["2", "Rope", "3"]]
    form, table = split_form(Table(rows=rows))
    assert rendered(form).text == "Invoice\nCustomer: Huber\nCity: Graz"
    assert rendered(table).text.split("\n")[1] == "No: 1; Item: Tent; Pieces: 2"
    assert len(list(split_form(Table(rows=rows[2:])))) == 1  # one row may be the upper one of a header


@pytest.mark.parametrize(
    "upper",
    [
        [[("", 1), ("2024", 2)]],
        [[("Plan", 1), ("2024", 2)]],
        [[("Plans of the year", 3)]],
        [[("Plans of the year", 3)], [("", 1), ("2024", 2)]],
    ],
)
def test_split_form__names_of_several_levels_and_titles_are_no_form(upper: list[list[tuple[str, int]]]) -> None:
    assert len(render_form(*upper, *CODES)) == 1
