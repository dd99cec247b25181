"""What a question names."""

from datetime import date

import pytest

from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.filters import find_filters
from kosmos_rag.text2sql.linking.entities import find_entities
from kosmos_rag.text2sql.linking.known_values import KnownValues, known_texts, normalize_value
from kosmos_rag.text2sql.records import Entities

TODAY = date(2026, 5, 20)


def _find(question: str, *values: str) -> Entities:
    return find_entities(question, values=KnownValues(values).find(question), today=TODAY)


def test_quoted_names__are_found_in_either_quotes() -> None:
    assert _find("runs of \"forest fire\" and 'night watch'").quoted == ("forest fire", "night watch")


def test_an_apostrophe__is_no_quote() -> None:
    assert _find("the program's owner and the user's role").quoted == ()


def test_a_code__is_meant_by_its_meaning_and_a_stop_word_is_no_value() -> None:
    state = ColumnSchema(name="state", labels=(("AK", "Alaska"), ("IN", "Indiana")))
    texts = known_texts(state)
    assert texts == {"alaska": "AK", "indiana": "IN"}
    schema = DatabaseSchema(name="shops", tables=(TableSchema(name="shops", columns=(state,)),))
    (condition,) = find_filters(schema, [("shops", "state")], _find("shops in Indiana", *texts), question="")
    assert (condition.value, condition.condition) == ("IN", "shops.state = 'IN'")
    assert known_texts(ColumnSchema(name="state", enum=("in", "out", "lost"))) == {"lost": "lost"}


@pytest.mark.parametrize(
    ("question", "bounds"),
    [
        ("usage count greater than 100", [(">", "100")]),
        ("no more than 1,500 runs, and at least 3", [("<=", "1500"), (">=", "3")]),
        ("more than 2000 runs", [(">", "2000")]),
        ("al menos 1999 usos", [(">=", "1999")]),
        ("prices between 10 and 20.5", [(">=", "10"), ("<=", "20.5")]),
        ("Preise zwischen 1.000 und 2.000,5", [(">=", "1000"), ("<=", "2000.5")]),
        ("precios entre -5 y 5", [(">=", "-5"), ("<=", "5")]),
        ("over 1 million runs", []),
        ("over 2.500 million runs", []),
        ("between 1 and 2 thousand runs", []),
        ("mehr als 3 Millionen Läufe", []),
        ("runs longer than 5 minutes, younger than 3 days", [(">", "5"), ("<", "3")]),
        ("tracks longer than 2000 metres", [(">", "2000")]),
        ("scores over 2.5 and below 9", [(">", "2.5"), ("<", "9")]),
        ("runs after 2005 with more than one user", []),
        ("the overhead of 7 runs", []),
        ("Bestellungen mit mehr als 1.000,50 Euro", [(">", "1000.5")]),
        ("Bestellungen über 2.500 und unter 9.000", [(">", "2500"), ("<", "9000")]),
        ("importe mayor que 1.000.000", [(">", "1000000")]),
        ("importe de al menos 2.500, no más de 1,500", [(">=", "2500"), ("<=", "1500")]),
        ("orders over 2.500 or at least 1,000.50", [(">", "2.5"), (">=", "1000.5")]),
        ("mehr als 1'000'000 oder höchstens 2\u00a0500", [(">", "1000000"), ("<=", "2500")]),
        ("orders over 1,00,000", [(">", "100000")]),
        ("no more than 2,5,7 orders", []),
        ("more than \u0663 orders", []),
    ],
)
def test_numbers__are_bounds_where_the_question_compares(question: str, bounds: list[tuple[str, str]]) -> None:
    assert [(bound.operator, bound.number) for bound in _find(question).bounds] == bounds


@pytest.mark.parametrize(
    ("words", "negations", "operator"),
    [
        (
            "more than, greater than, higher than, larger than, bigger than, longer than, older than, over, exceed",
            "no, not, isn't, aren’t, must not be, not to",
            "<=",
        ),
        (
            "less than, fewer than, lower than, smaller than, shorter than, younger than, under, below",
            "no, not, isn't, aren’t, must not be, not to",
            ">=",
        ),
        ("mehr als, größer als, höher als, länger als, älter als, über", "nicht", "<="),
        ("weniger als, kleiner als, niedriger als, kürzer als, jünger als, unter", "nicht", ">="),
        ("más de, mayor que", "no", "<="),
        ("menos de, menor que", "no", ">="),
    ],
)
def test_the_negation_of_a_comparison__is_the_opposite(words: str, negations: str, operator: str) -> None:
    for word in words.split(", "):
        for negation in negations.split(", "):
            bounds = _find(f"runs {negation} {word} 5").bounds
            assert [bound.operator for bound in bounds] == [operator], (negation, word)


def test_known_values__are_found_as_whole_words() -> None:
    assert _find("Which forest fire runs failed, not unfailed?", "forest fire", "failed", "ire").values == (
        "forest fire",
        "failed",
    )


@pytest.mark.parametrize(
    ("question", "day"),
    [
        ("runs since yesterday", date(2026, 5, 19)),
        ("runs 3 days ago", date(2026, 5, 17)),
        ("runs after 2025-03-01", date(2025, 3, 1)),
        ("runs of 12 March 2024", date(2024, 3, 12)),
        ("runs of May 3, 2025", date(2025, 5, 3)),
        ("runs two weeks ago", date(2026, 5, 6)),
        ("runs on Monday", date(2026, 5, 18)),
        ("runs of March 2024", None),
    ],
)
def test_dates__are_read_relative_to_today(question: str, day: date | None) -> None:
    assert [result for _, result in _find(question).dates] == [day]


def test_what_stands_in_a_date__is_no_name_and_no_number() -> None:
    result = _find("orders since 3 March 2024 or Monday of more than 500 euros by Ann")
    assert (result.names, result.numbers) == (("Ann",), ("500",))
    assert _find("how many may order").dates == ()


def test_years__are_dates_without_a_day_and_no_numbers() -> None:
    result = _find("concerts in 2014 with more than 3 singers")
    assert result.dates == (("2014", None),)
    assert result.numbers == ("3",)


@pytest.mark.parametrize(
    ("question", "comparisons"),
    [
        ("more than 5", (">",)),
        ("between 1 and 2", ("between",)),
        ("the oldest of all", ("max",)),
        ("at least 5, at most 9", (">", "<")),
        ("no more than 5", ("<",)),
        ("no fewer than 5", (">",)),
        ("not older than 5", ("<",)),
        ("isn't longer than 5", ("<",)),
        ("must not be below 5", (">",)),
        ("not later than March", ("<",)),
        ("not earlier than March", (">",)),
        ("how many are below the average", ("<", "average", "count")),
        ("names", ()),
    ],
)
def test_comparisons__are_named(question: str, comparisons: tuple[str, ...]) -> None:
    assert _find(question).comparisons == comparisons


@pytest.mark.parametrize(
    ("question", "values", "misspelt"),
    [
        ("runs of forrest fier", ["forest fire", "night watch"], [("forrest fier", "forest fire")]),
        ("runs of foerst fire", ["forest fire"], [("foerst fire", "forest fire")]),
        ("who is retierd", ["retired"], [("retierd", "retired")]),
        ("runs of forest fire", ["forest fire", "forest fires"], []),
        ("names of dogs", ["cogs", "dogmas"], []),
        ("runs of forrest fier", ["forest fires"], []),
        ("colours of programs", ["programm"], []),
        ("runs in st. jhon's", ["st john's"], [("st jhon's", "st john's")]),
    ],
)
def test_values__are_found_with_one_typo_in_a_word(
    question: str, values: list[str], misspelt: list[tuple[str, str]]
) -> None:
    matches = KnownValues(values).find(question, is_name=lambda word: word == "programs")
    entities = find_entities(question, values=matches, today=TODAY)
    assert list(entities.misspelt) == misspelt
    assert {value for _, value in misspelt} <= set(entities.values)


def test_values__are_found_whatever_their_punctuation() -> None:
    assert _find("Who lives in St. John's (north)?", normalize_value("St John's / North")).values == (
        "st john's north",
    )


def _filters(question: str, *columns: ColumnSchema, names: tuple[str, ...] = ()) -> list[str]:
    schema = DatabaseSchema(name="d", tables=(TableSchema(name="rooms", columns=columns),))
    entities = find_entities(question, row_names=lambda _: names, today=TODAY)
    refs = [("rooms", column.name) for column in columns]
    return [item.condition for item in find_filters(schema, refs, entities, question=question)]


@pytest.mark.parametrize(
    ("question", "conditions"),
    [
        ("rooms on floor 1", ["rooms.floor = 1"]),
        ("rooms with error code E117?", ["rooms.error_code = 'E117'"]),
        ("rooms with error code 4711", ["rooms.error_code = '4711'"]),
        ("rooms on floor E1", []),
        ("rooms with code 4711", []),
        ("rooms of floor plan 1", []),
        ("rooms on floor 2025", []),
        ("rooms opened 7", []),
    ],
)
def test_a_number_or_code__after_the_name_of_a_column_is_a_condition(question: str, conditions: list[str]) -> None:
    columns = (
        ColumnSchema(name="floor", type="integer"),
        ColumnSchema(name="error_code", type="text"),
        ColumnSchema(name="opened", type="date"),
    )
    assert [item for item in _filters(question, *columns) if "opened >=" not in item] == conditions


@pytest.mark.parametrize(
    ("question", "condition"),
    [
        ("Räume mit mehr als 30 seats", "rooms.seats > 30"),
        ("Räume mit höchstens 30 seats", "rooms.seats <= 30"),
        ("salas con al menos 30 seats", "rooms.seats >= 30"),
        ("rooms with over 1,500 seats", "rooms.seats > 1500"),
        ("Räume mit weniger als 2,5 seats", "rooms.seats < 2.5"),
    ],
)
def test_a_comparison__is_read_in_three_languages(question: str, condition: str) -> None:
    assert _filters(question, ColumnSchema(name="seats", type="numeric")) == [condition]


def test_a_name_of_a_row__is_no_condition_where_a_known_value_is_in_it() -> None:
    columns = (ColumnSchema(name="bezeichnung", type="text"), ColumnSchema(name="kind", samples=("north wing",)))
    schema = DatabaseSchema(name="d", tables=(TableSchema(name="rooms", columns=columns),))
    entities = find_entities(
        "rooms of the north wing hall",
        values=KnownValues(["north wing"]).find("rooms of the north wing hall"),
        row_names=lambda _: ["north wing hall", "blue lamp"],
        today=TODAY,
    )
    conditions = find_filters(schema, [("rooms", "bezeichnung"), ("rooms", "kind")], entities, question="")
    assert [item.condition for item in conditions] == ["rooms.kind = 'north wing'", "rooms.bezeichnung = 'blue lamp'"]


def test_a_time__is_a_condition_on_the_table_of_the_best_column_unless_a_column_is_named() -> None:
    schema = DatabaseSchema(
        name="d",
        tables=(
            TableSchema(name="parks", columns=(ColumnSchema(name="opened", type="date"),)),
            TableSchema(
                name="yields",
                columns=(ColumnSchema(name="energy", type="numeric"), ColumnSchema(name="day", type="date")),
            ),
        ),
    )
    refs = [("yields", "energy"), ("parks", "opened"), ("yields", "day")]

    def columns(question: str) -> list[str]:
        entities = find_entities(question, today=TODAY)
        return [item.column for item in find_filters(schema, refs, entities, question=question)]

    assert columns("energy of parks in March 2025") == ["day"]
    assert columns("energy of parks opened in March 2025") == ["opened"]


def test_names_of_rows__are_looked_for_without_times() -> None:
    texts: list[str] = []
    find_entities("energy of yesterday", row_names=lambda text: texts.append(text) or (), today=TODAY)
    assert "yesterday" not in texts[0]
