"""Grids of a PDF page where ruled lines between rows or columns are missing, or are white."""

from tests.unit.parsing.test_pdf_tables import Sheet

NAMES = ["Cost", "Total", "Direct"]
COSTS = [["Salaries", "1314", "940"], ["Rent", "170", "150"], ["Travel", "94", "74"], ["Supplies", "161", "82"]]
SALARIES = "Cost: Salaries; Total: 1314; Direct: 940"


def test_parse_pdf__names_of_rows_have_no_lines_between_them() -> None:
    sheet = Sheet()
    sheet.rows([NAMES, *COSTS], 100)
    sheet.across(88, 104, 168)
    sheet.across(120, 136, 152, left=135)
    sheet.down(135, 225, 315, top=88, bottom=168)
    assert f"{SALARIES}\nCost: Rent; Total: 170; Direct: 150\nCost: Travel; " in sheet.parse().text


def test_parse_pdf__a_cell_over_several_rows_is_whole() -> None:
    sheet = Sheet()
    sheet.rows([["Area", "Year", "Sum"], ["", "2019", "15"], ["", "2020", "16"], ["", "2021", "17"]], 100)
    sheet.rows([["North of"], ["the river"]], 124, pitch=12)
    sheet.across(88, 104, 152)
    sheet.across(120, 136, left=135)
    sheet.down(45, 135, 225, 315, top=88, bottom=152)
    assert "Area: North of the river; Year: 2020; Sum: 16" in sheet.parse().text


def test_parse_pdf__names_of_rows_are_outside_the_lines() -> None:
    sheet = Sheet()
    sheet.rows([["", *NAMES[1:]], *COSTS], 100)
    sheet.across(*range(88, 169, 16), left=135)
    sheet.down(135, 225, 315, top=88, bottom=168)
    assert "\nSalaries; Total: 1314; Direct: 940\nRent; " in sheet.parse().text


def test_parse_pdf__text_beside_a_grid_is_none_of_its_rows() -> None:
    sheet = Sheet()
    for number in range(5):
        sheet.pdf.text(50, 100 + 16 * number, "The fees of all of the offices grew again")
    sheet.rows([NAMES, *COSTS], 100, left=300)
    sheet.across(*range(88, 169, 16), left=295, right=565)
    sheet.down(295, 385, 475, 565, top=88, bottom=168)
    text = sheet.parse().text
    assert SALARIES in text
    assert "again; " not in text


def test_parse_pdf__columns_of_numbers_share_a_column_of_the_grid() -> None:
    sheet = Sheet()
    sheet.rows([["Offence", "Male", "", "Female"]], 100)
    sheet.rows([["", "2019", "2020", "2019", "2020"]], 116)
    sheet.rows(
        [["Arson", "19", "18", "17", "14"], ["Theft", "80", "85", "31", "32"], ["Fraud", "67", "68", "9", "8"]], 132
    )
    sheet.across(88, 124, 170, right=495)
    sheet.across(107, left=135, right=495)
    sheet.down(135, 315, top=88, bottom=170)
    text = sheet.parse().text
    assert "Arson; Male / 2019: 19; Male / 2020: 18; Female / 2019: 17; Female / 2020: 14" in text


def test_parse_pdf__columns_of_a_grid_go_on_below_the_lines_between_their_names() -> None:
    sheet = Sheet()
    sheet.rows([NAMES, *COSTS], 100)
    sheet.across(*range(88, 169, 16))
    sheet.down(45, 315, top=88, bottom=168)
    sheet.down(135, 225, top=88, bottom=104)
    assert SALARIES in sheet.parse().text


def test_parse_pdf__a_ruled_line_divides_a_number_from_small_letters() -> None:
    sheet = Sheet()
    sheet.rows([["Code", "Number", "Name"], ["302", "", ""], ["303", "", ""]], 100)
    for number, (value, name) in enumerate([("10.12", "Noodles"), ("12.98", "Beans")]):
        sheet.pdf.set_font("helvetica", size=12)
        sheet.pdf.text(224.5 - sheet.pdf.get_string_width(value), 116 + 16 * number, value)
        sheet.pdf.set_font("helvetica", size=7)
        sheet.pdf.text(225.5, 116 + 16 * number, name)
    sheet.across(88, 104, 120, 136)
    sheet.down(45, 135, 225, 315, top=88, bottom=136)
    assert "Code: 302; Number: 10.12; Name: Noodles" in sheet.parse().text


def test_parse_pdf__a_white_line_on_a_shade_is_seen() -> None:
    sheet = Sheet()
    sheet.pdf.set_fill_color(160, 90, 10)
    sheet.pdf.rect(45, 88, 270, 32, style="F")
    sheet.pdf.set_draw_color(255, 255, 255)
    sheet.across(104, left=135)
    sheet.down(135, top=88, bottom=120)
    sheet.down(225, top=104, bottom=120)
    sheet.pdf.set_draw_color(0, 0, 0)
    sheet.rows([["Area", "Persons"], ["", "Rural", "Urban"], ["Barpeta", "88", "91"], ["Dhubri", "86", "87"]], 100)
    sheet.across(88, 120, 136, 152)
    sheet.down(45, 315, top=88, bottom=152)
    sheet.down(135, 225, top=120, bottom=152)
    assert "Area: Barpeta; Persons / Rural: 88; Persons / Urban: 91" in sheet.parse().text


def test_parse_pdf__a_row_with_numbers_is_no_row_of_a_form() -> None:
    sheet = Sheet()
    sheet.rows([NAMES, *COSTS], 100, pitch=40)
    sheet.across(*range(88, 289, 40))
    sheet.down(45, 135, 225, 315, top=88, bottom=288)
    assert SALARIES in sheet.parse().text


def test_parse_pdf__one_name_in_the_middle_of_all_columns_is_above_them() -> None:
    sheet = Sheet()
    sheet.pdf.text(223, 100, "Difficulties")
    rows = [
        ["Skills", "Staff", "Pupils", "Parents"],
        ["Social", "0.16", "0.27", "0.11"],
        ["Foreign", "0.08", "0.20", "0.13"],
    ]
    sheet.rows([*rows, ["Own", "0.12", "0.24", "0.16"]], 124)
    sheet.across(88, 130, 180, right=405)
    assert "Skills: Social; Staff: 0.16; Pupils: 0.27; Parents: 0.11" in sheet.parse().text


def test_parse_pdf__a_number_is_in_the_middle_of_a_cell_of_two_lines() -> None:
    sheet = Sheet()
    sheet.rows([["Service", "", ""]], 100)
    sheet.rows([["", "Price", "Sum"]], 100)
    for number, (first, second, price) in enumerate(
        [("Care of the", "garden", "201.76"), ("Clean", "stairs", "982.72")]
    ):
        sheet.rows([[first], [second]], 120 + 40 * number, pitch=12)
        sheet.rows([["", price, price]], 127 + 40 * number)
    sheet.across(88, 104, 200)
    sheet.down(45, 135, 225, 315, top=88, bottom=200)
    assert "Service: Care of the garden; Price: 201.76; Sum: 201.76" in sheet.parse().text


def test_parse_pdf__names_above_the_lines_between_columns_are_those_of_the_columns() -> None:
    sheet = Sheet()
    sheet.rows([NAMES, *COSTS], 100)
    sheet.across(88, 104, 120, 136, 152, 168)
    sheet.down(45, 315, top=88, bottom=168)
    sheet.down(135, 225, top=104, bottom=168)
    assert SALARIES in sheet.parse().text


def test_parse_pdf__blank_rows_of_a_form_leave_its_table() -> None:
    sheet = Sheet()
    sheet.rows([NAMES, *COSTS[:3], *[["", "", "-"]] * 46], 100, pitch=12)
    sheet.across(*range(91, 692, 12))
    sheet.down(45, 135, 225, 315, top=91, bottom=691)
    assert SALARIES in sheet.parse().text
