"""The days that a question means."""

from datetime import date

import pytest

from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.filters import find_filters
from kosmos_rag.text2sql.linking.entities import find_entities

TODAY = date(2026, 5, 20)  # a Wednesday


@pytest.mark.parametrize(
    ("question", "ranges"),
    [
        ("runs of last week", [("2026-05-11", "2026-05-18")]),
        ("runs of the past week", [("2026-05-14", "2026-05-21")]),
        ("runs of the last 7 days", [("2026-05-14", "2026-05-21")]),
        ("runs of the last 3 months", [("2026-02-21", "2026-05-21")]),
        ("runs this quarter", [("2026-04-01", "2026-07-01")]),
        ("runs of last year", [("2025-01-01", "2026-01-01")]),
        ("runs in Q3 2025", [("2025-07-01", "2025-10-01")]),
        ("runs in Q4", [("2025-10-01", "2026-01-01")]),
        ("runs since March", [("2026-03-01", None)]),
        ("runs since December", [("2025-12-01", None)]),
        ("runs after March 2024", [("2024-04-01", None)]),
        ("runs before 2025", [(None, "2025-01-01")]),
        ("runs until 2025-03-01", [(None, "2025-03-02")]),
        ("runs between March and May 2025", [("2025-03-01", "2025-06-01")]),
        ("runs from 2024-01-31 to 2024-02-29", [("2024-01-31", "2024-03-01")]),
        ("runs of yesterday and in 2014", [("2026-05-19", "2026-05-20"), ("2014-01-01", "2015-01-01")]),
        ("runs of the last 99999999 years", []),
        ("runs that may fail", []),
        ("runs since May", [("2026-05-01", None)]),
        ("runs of the third quarter of 2025", [("2025-07-01", "2025-10-01")]),
        ("runs from March", [("2026-03-01", "2026-04-01")]),
        ("runs of two weeks ago", [("2026-05-06", "2026-05-07")]),
        ("runs of version 1.2024.3", []),
        ("runs of version 2024.1 by ISO 27001:2013", []),
        ("programs with more than 2000 runs", []),
        ("Programme mit höchstens 2000 Läufen", []),
        ("costs over 2000 euros, up to 1,500 EUR or about 1800 €", []),
        ("costs of $2000 or € 1999", []),
        ("an allowance between 1500 and 2000 euros", []),
        ("a way under 2000 km, above 2000 or longer than 2000", []),
        ("Kosten bis zu 2000 Euro bei 1800 Stunden", []),
        ("costs in euros of 2024", [("2024-01-01", "2025-01-01")]),
        ("a team of about 2000 employees, up to 2000 Mitarbeiter", []),
        ("a firm of 2000 employees with between 1500 and 2000 people", []),
        ("from 2019 to 2024 employees paid", [("2019-01-01", "2025-01-01")]),
        ("since 2024 employees may work at home", [("2024-01-01", None)]),
        ("revenue in $ 2024", [("2024-01-01", "2025-01-01")]),
        ("Umsatz in Mio. € 2024", [("2024-01-01", "2025-01-01")]),
        ("the 2024 EUR/USD rate", [("2024-01-01", "2025-01-01")]),
        ("the 2023 users survey", [("2023-01-01", "2024-01-01")]),
        ("the 2024 M&A report and the 2023 G-7 summit", [("2024-01-01", "2025-01-01"), ("2023-01-01", "2024-01-01")]),
        ("runs not before 2024", [("2024-01-01", None)]),
        ("runs no later than March 2025", [(None, "2025-04-01")]),
        ("runs later than 2024 and no earlier than May 2025", [("2025-01-01", None), ("2025-05-01", None)]),
        ("runs in 2020–2022", [("2020-01-01", "2023-01-01")]),
        ("runs of January 2025 - March 2025", [("2025-01-01", "2025-04-01")]),
        ("Läufe nicht vor 2024", [("2024-01-01", None)]),
        ("Läufe spätestens im März 2025", [(None, "2025-04-01")]),
        ("Läufe älter als 2020", [(None, "2020-01-01")]),
        ("Läufe seit März", [("2026-03-01", None)]),
        ("Läufe vor März 2025", [(None, "2025-03-01")]),
        ("Läufe vor drei Wochen", [("2026-04-29", "2026-04-30")]),
        ("Läufe der letzten 7 Tage", [("2026-05-14", "2026-05-21")]),
        ("Läufe der vergangenen Woche", [("2026-05-11", "2026-05-18")]),
        ("Läufe zwischen März und Mai 2025", [("2025-03-01", "2025-06-01")]),
        ("Läufe im dritten Quartal 2025", [("2025-07-01", "2025-10-01")]),
        ("Läufe ab 1. Mai 2025", [("2025-05-01", None)]),
        ("Läufe am 12.03.2024", [("2024-03-12", "2024-03-13")]),
        ("Läufe am 31.02.2024", []),
    ],
)
def test_times__are_ranges_of_days(question: str, ranges: list[tuple[str | None, str | None]]) -> None:
    time_ranges = find_entities(question, today=TODAY).time_ranges
    assert [(item.start and str(item.start), item.end and str(item.end)) for item in time_ranges] == ranges


@pytest.mark.parametrize(
    ("words", "negations", "opposite"),
    [
        ("after, later than, newer than, younger than", "no, not, must not be, isn't, aren’t", (None, "2025-01-01")),
        ("before, earlier than, older than", "no, not, must not be, aren't, isn’t", ("2024-01-01", None)),
        ("nach, später als, neuer als, jünger als", "nicht", (None, "2025-01-01")),
        ("vor, früher als, älter als", "nicht", ("2024-01-01", None)),
    ],
)
def test_the_negation_of_a_side__is_the_other_side(
    words: str, negations: str, opposite: tuple[str | None, str | None]
) -> None:
    for word in words.split(", "):
        for negation in negations.split(", "):
            (item,) = find_entities(f"runs {negation} {word} 2024", today=TODAY).time_ranges
            assert (item.start and str(item.start), item.end and str(item.end)) == opposite, (negation, word)


@pytest.mark.parametrize("today", [date.min, date.max])
@pytest.mark.parametrize(
    "question", ["runs of yesterday", "runs of tomorrow", "runs of last year", "runs of next week", "runs on Monday"]
)
def test_times__beyond_the_calendar_are_none(question: str, today: date) -> None:
    assert len(find_entities(question, today=today).time_ranges) <= 1


def test_a_time__is_a_condition_on_the_best_column_of_dates() -> None:
    columns = [ColumnSchema(name="year", type="integer"), ColumnSchema(name="begun", type="timestamptz")]
    schema = DatabaseSchema(name="d", tables=(TableSchema(name="runs", columns=tuple(columns)),))
    entities = find_entities("runs since March", today=TODAY)
    (result,) = find_filters(schema, [("runs", "year"), ("runs", "begun")], entities, question="runs since March")
    assert (result.match, result.value, result.text) == ("range", "2026-03-01/..", "since March")
    assert result.condition == "runs.begun >= '2026-03-01'"
    assert find_filters(schema, [("runs", "year")], entities, question="runs since March") == ()
