"""Numbers and dates as Excel shows them; the expected texts are Excel's own, in English."""

from datetime import date, datetime, time, timedelta

import pytest

from kosmos_rag.parsing.tables.number_format import Value, show


@pytest.mark.parametrize(
    ("value", "code", "output"),
    [
        (0.256, "0.0%", "25.6%"),
        (0.256, "0.0 %", "25.6 %"),
        (0.256, "0%", "26%"),
        (4500, "#,##0", "4,500"),
        (1234567.891, "#,##0.00", "1,234,567.89"),
        (4500, '#,##0.00 "EUR"', "4,500.00 EUR"),
        (4500, "[$€-407] #,##0", "€ 4,500"),
        (-4500, '"$"#,##0_);("$"#,##0)', "($4,500)"),
        (-4500, '"$"#,##0_);[Red]\\("$"#,##0\\)', "($4,500)"),
        (4500, '_-* #,##0.00\\ [$€-407]_-;-* #,##0.00\\ [$€-407]_-;_-* "-"??\\ [$€-407]_-', "4,500.00 €"),
        (0, '#,##0;-#,##0;"-"', "-"),
        (-3, "0", "-3"),
        (-0.001, "0.0", "0.0"),
        (2.5, "0", "3"),
        (0.5, "#.##", ".5"),
        (7, "0.0#", "7.0"),
        (7, "000", "007"),
        (12_500_000, "0.0,,", "12.5"),
        (12_500, '#,##0, "k"', "13 k"),
        (123456, "0.00E+00", "1.23E+05"),
        (12, '0 "kg"', "12 kg"),
        (0.1 + 0.2, "General", "0.3"),
        (3.0, "General", "3"),
        (3.25, "# ?/?", "3.25"),
        (5, "[>=1000]0.0;0", "5"),
        (1, '"Yes";"Yes";"No"', "Yes"),
        (True, "0", "TRUE"),
        (1e300, "#,##0", "1e+300"),
        (5, "0" * 300, "5"),
        (5, "0." + "0" * 200, "5"),
        (datetime(2024, 5, 1), "d mmm yyyy", "1 May 2024"),
        (datetime(2024, 5, 1), "mmm-yy", "May-24"),
        (datetime(2024, 5, 1), "dd/mm/yyyy", "01/05/2024"),
        (datetime(2024, 5, 1), "dddd, d. mmmm yyyy", "Wednesday, 1. May 2024"),
        (datetime(2024, 5, 1, 15, 4, 5), "yyyy-mm-dd hh:mm:ss", "2024-05-01 15:04:05"),
        (datetime(2024, 5, 1, 15, 4), "h:mm AM/PM", "3:04 PM"),
        (datetime(2024, 5, 1), "mm-dd-yy", "2024-05-01"),
        (date(2024, 5, 1), "yyyy", "2024"),
        (time(9, 5), "h:mm", "9:05"),
        (timedelta(hours=27, minutes=5), "[h]:mm", "27:05"),
        ("text", "0.0", "text"),
    ],
)
def test_show__formats_as_a_spreadsheet(value: Value, code: str, output: str) -> None:
    assert show(value, code) == output


@pytest.mark.parametrize(
    "code", ['"', "[", ";", "\\", "[h", "0;0;0;0;0", "mmmmmmm", "yyyyyyyyy", "s.000000000", "E+0", "", "@", ",", "."]
)
def test_show__a_broken_code_shows_something(code: str) -> None:
    for value in (-1.5, 0, 10**400, datetime(2024, 5, 1), timedelta(days=-1), float("nan"), float("inf")):
        assert isinstance(show(value, code), str)
