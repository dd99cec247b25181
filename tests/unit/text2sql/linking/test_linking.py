"""Questions linked to names, without any document found."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

import kosmos_rag.text2sql.linking
from kosmos_rag.retrieval.expansion.synonyms import Rule, Synonyms
from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.linking.columns import best_first
from kosmos_rag.text2sql.linking.entities import find_entities
from kosmos_rag.text2sql.linking.linking import Linked, Linker, Similarities
from kosmos_rag.text2sql.linking.name_index import NameIndex
from kosmos_rag.text2sql.linking.select import rank_columns
from kosmos_rag.text2sql.linking.weights import Weights

NOTHING = Similarities(tables={}, columns={})
HINTS = Synonyms.load(Path(kosmos_rag.text2sql.linking.__file__).parent / "hints.yaml")


def _table(name: str, *columns: str, keys: dict[str, str] | None = None) -> TableSchema:
    return TableSchema(
        name=name,
        columns=tuple(ColumnSchema(name=column) for column in columns),
        primary_key=("id",) if "id" in columns else (),
        foreign_keys=tuple(
            ForeignKey(columns=(column,), table=table, target=("id",)) for column, table in (keys or {}).items()
        ),
    )


def _music() -> DatabaseSchema:
    return DatabaseSchema(
        name="music",
        tables=(
            _table("singer", "id", "name", "age"),
            _table("concert", "id", "year", "stadium_id", keys={"stadium_id": "stadium"}),
            _table("stadium", "id", "capacity"),
            _table(
                "singer_in_concert", "singer_id", "concert_id", keys={"singer_id": "singer", "concert_id": "concert"}
            ),
        ),
    )


def _shop() -> DatabaseSchema:
    return DatabaseSchema(name="shop", tables=(_table("customer", "id", "name"), _table("highschooler", "id", "grade")))


def _linked(
    question: str,
    *schemas: DatabaseSchema,
    synonyms: Synonyms = HINTS,
    evidence: Similarities = NOTHING,
    tables: int = 9,
) -> Linked:
    linker = Linker(NameIndex(schemas or (_music(), _shop()), synonyms))
    entities = find_entities(question, values=linker.find_values(question), today=date(2026, 1, 1))
    return linker.link(question, entities, evidence, tables=tables)


def _first(linked: Linked) -> str:
    return f"{linked.tables[0].database}.{linked.tables[0].table}"


@pytest.mark.parametrize(
    ("question", "table"),
    [
        ("How many singers are there?", "music.singer"),
        ("capacity of all stadiums", "music.stadium"),
        ("names of customers", "shop.customer"),
        ("high schoolers by grade", "shop.highschooler"),
        ("how many custommers", "shop.customer"),
    ],
)
def test_a_table__is_found_by_plural_compound_and_misspelt_names(question: str, table: str) -> None:
    assert _first(_linked(question)) == table


def test_a_database__gains_where_it_has_words_for_the_whole_question() -> None:
    # `name` is in both; only one has singers beside it.
    linked = _linked("names of singers who sang in a stadium")
    assert linked.tables[0].database == "music"
    assert linked.tables[0].parts["database"] > next(
        table.parts["database"] for table in linked.tables if table.database == "shop"
    )


def test_equal_tables_of_two_databases__the_smaller_database_is_first() -> None:
    # Of many names some match by chance.
    alone = DatabaseSchema(name="alone", tables=(_table("singer", "id", "name", "age"),))
    assert _first(_linked("age of the singers", _music(), alone)) == "alone.singer"
    assert _first(_linked("age of the singers", alone, _music())) == "alone.singer"
    assert _first(_linked("singers by the capacity of their stadium", _music(), alone)).startswith("music.")


def test_the_best_table_of_each_database__has_the_score_of_the_database() -> None:
    linked = _linked("capacity of all stadiums")
    own_evidence: dict[str, list[float]] = {}
    for item in linked.tables:
        parts = [item.parts.get(name, 0.0) for name in ("words", "named", "meaning", "best")]
        own_evidence.setdefault(item.database, []).append(sum(parts))
    assert {database: max(sums) for database, sums in own_evidence.items()} == pytest.approx(
        {"music": 0.0, "shop": 0.0}
    )
    assert linked.tables[0].table == "stadium"
    assert min(own_evidence["music"]) < 0


def test_each_word_of_a_question__counts_the_same_for_a_database() -> None:
    schemas = [DatabaseSchema(name=name, tables=(_table("thing", "name", name),)) for name in ("red", "blue", "green")]
    index = NameIndex(schemas, Synonyms([]))
    words = index.words("name of the blue thing")
    strengths = np.maximum(index.match_table_names(words)[0], index.best_of_tables(index.match_column_names(words)[0]))
    assert index.match_databases(strengths).tolist() == pytest.approx([2 / 3, 1.0, 2 / 3])


def test_equal_documents_of_two_databases__are_the_same_evidence() -> None:
    columns = ("id", "name", "age")
    first = DatabaseSchema(name="first", tables=(_table("singer", *columns),))
    second = DatabaseSchema(name="second", tables=(_table("singer", *columns),))
    similarities = Similarities(tables={("second", "singer"): 0.7}, columns={("second", "singer", "age"): 0.8})
    item, other = _linked("zzz", first, second, evidence=similarities).tables
    assert item.score == pytest.approx(other.score + 0.5), "apart from the part of the needed table"
    assert item.database == "first", "not of chance: in the order of the schemas"


def test_an_instruction_to_count__is_no_name() -> None:
    world = DatabaseSchema(name="world", tables=(_table("country", "id", "name", "number"), _table("singer", "id")))
    index = NameIndex([world], HINTS)
    for question in ("Count the number of singers", "Count the singers", "What is the count of singers?"):
        assert [word.text for word in index.words(question)] == ["singer"]
    runs = DatabaseSchema(name="runs", tables=(_table("runs", "id", "success_count"),))
    assert "count" in {word.text for word in NameIndex([runs], HINTS).words("success count of each run")}


def test_the_ranked_columns__have_keys_after_strong_columns_and_before_weak_ones() -> None:
    schema = _music()
    linked = _linked("capacity of the stadium and the year of its concert", schema)
    assert {"stadium", "concert"} <= set(linked.chosen)
    graph = JoinGraph(schema)
    columns = rank_columns(linked, graph.plans(["concert", "stadium"]), ())
    assert set(columns[:2]) == {("stadium", "capacity"), ("concert", "year")}
    assert columns[2:4] == [("concert", "stadium_id"), ("stadium", "id")]
    assert len(columns) == len(set(columns)) == len(linked.columns)
    weak = replace(linked.columns[1], parts={"words": 0.1})
    weaker = replace(linked, columns=(linked.columns[0], weak, *linked.columns[2:]), supported=2)
    columns = rank_columns(weaker, graph.plans(["concert", "stadium"]), ())
    assert columns[1:4] == [("concert", "stadium_id"), ("stadium", "id"), (weak.table, weak.column)]


def test_the_ranked_columns__have_keys_before_a_repeated_column() -> None:
    tables = [_table(name, "id", "state") for name in ("customer", "supplier")]
    sale = _table("sale", "id", "customer_id", keys={"customer_id": "customer"})
    schema = DatabaseSchema(name="trade", tables=(*tables, sale))
    plans = JoinGraph(schema).plans(["customer", "sale"])
    columns = rank_columns(_linked("the state with most sales", schema), plans, ())
    assert columns[:4] == [("customer", "state"), ("sale", "customer_id"), ("customer", "id"), ("supplier", "state")]


def test_the_ranked_columns__have_keys_of_the_next_table_after_five_columns() -> None:
    linked = _linked("age of the singers", _music())
    (plan,) = JoinGraph(_music()).plans(["singer", "singer_in_concert"])
    columns = rank_columns(linked, (), plan.paths[0].joins)
    at = columns.index(("singer_in_concert", "singer_id"))
    assert {(column.table, column.column) for column in linked.columns[:5]} <= set(columns[: max(at, 5) + 1])
    assert columns[:1] == [("singer", "age")]


def _returned(linked: Linked) -> list[str]:
    return [f"{column.table}.{column.column}" for column in linked.columns[: linked.supported]]


def test_asked_columns__come_before_the_keys_of_their_joins() -> None:
    linked = _linked("singers and the year of their concert", _music())
    assert {"singer", "concert"} <= set(linked.chosen)
    assert _returned(linked) == ["concert.year"]
    assert (linked.columns[1].column, linked.columns[1].parts["label"]) == ("name", 0.5)
    assert _returned(_linked("id of each singer", _music()))[0] == "singer.id"


def test_columns__are_cut_where_the_evidence_ends() -> None:
    assert _returned(_linked("capacity of the stadiums", _music())) == ["stadium.capacity"]
    assert set(_returned(_linked("name and age of the singers", _music()))) == {"singer.name", "singer.age"}
    linked = _linked("how many singers are there", _music())
    assert "label" not in linked.columns[0].parts, "rows are counted, not named"


def test_a_word_of_the_language__is_no_typo_of_a_name() -> None:
    schema = DatabaseSchema(name="clinic", tables=(_table("patient", "district"), _table("machine", "cores")))
    index = NameIndex([schema], HINTS)
    assert [word.text for word in index.words("patents on distinct machines with at least 16 cores")] == [
        "machin",
        "cor",
    ]
    assert [word.text for word in index.words("the pattient")] == ["pattient"]


SPELLINGS = (
    "colour color, honour honor, labour labor, neighbourhood neighborhood, rumour rumor, armour armor, vapour vapor, "
    "odour odor, tumour tumor, humour humor, savour savor, enrolment enrollment, fulfilment fulfillment, "
    "instalment installment, jewellery jewelry, organisation organization, artefacts artifact, fibre fiber, "
    "litres liter, sulphur sulfur, paediatric pediatric, anaesthesia anesthesia, haemoglobin hemoglobin, "
    "oestrogen estrogen, foetus fetus, anaemia anemia, leukaemia leukemia, glycaemia glycemia, haematology hematology, "
    "ischaemia ischemia, oesophagus esophagus, faecal fecal, gynaecology gynecology, archaeology archeology, "
    "manoeuvre maneuver, diarrhoea diarrhea, encyclopaedia encyclopedia, harbour harbor"
)


@pytest.mark.parametrize("spellings", SPELLINGS.split(", "))
def test_a_word__is_a_name_in_british_and_american(spellings: str) -> None:
    for word, name in (spellings.split(), reversed(spellings.split())):
        index = NameIndex([DatabaseSchema(name="things", tables=(_table("thing", name, "id"),))], HINTS)
        matches = [max(match.matches.values()) for match in index.words(f"the {word} of things")]
        assert matches == [1.0, 1.0]
        assert index.is_name(word)


@pytest.mark.parametrize(
    "words", ["files fills", "poets pets", "patents patients", "mourning morning", "fourth forth", "scour score"]
)
def test_a_spelling__joins_no_other_words(words: str) -> None:
    for word, name in (words.split(), reversed(words.split())):
        index = NameIndex([DatabaseSchema(name="things", tables=(_table("thing", name, "id"),))], HINTS)
        assert [match.text for match in index.words(f"the {word} of things")] == ["thing"]


def test_a_spelling__is_found_beside_an_equal_name() -> None:
    index = NameIndex([DatabaseSchema(name="things", tables=(_table("thing", "color", "colour"),))], HINTS)
    assert [len(word.matches) for word in index.words("the colour of all")] == [2]


def test_a_word_of_the_question__counts_for_the_first_column_that_has_it() -> None:
    tables = [_table(f"table_{number}", "state", "state_code") for number in range(3)]
    schema = DatabaseSchema(name="money", tables=(*tables, _table("money", "net_revenue_total", "kind")))
    linked = _linked("the state code with the most revenue", schema)
    assert [column.column for column in linked.columns[:2]] == ["state_code", "net_revenue_total"]
    assert "repeated" not in linked.columns[0].parts
    assert all(column.parts["repeated"] < 0 for column in linked.columns[2:7])
    scores = [column.score for column in linked.columns]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    "question", ["state and country of customers", "name of the shop with the most revenue of orders"]
)
def test_a_repeated_word__puts_no_column_without_evidence_among_the_supported(question: str) -> None:
    names = ("customers", "suppliers", "shops", "warehouses", "partners", "offices")
    others = [f"other_{number}" for number in range(12)]
    tables = [_table(name, "id", "name", "country", "state", *others) for name in names]
    schema = DatabaseSchema(name="trade", tables=(*tables, _table("orders", "id", "revenue", *others)))
    linked = _linked(question, schema)
    assert all(column.evidence > 0 for column in linked.columns[: linked.supported])
    assert linked.supported <= 12


def test_a_table__is_chosen_for_a_word_that_no_other_has() -> None:
    assert _linked("concert capacity", _music()).chosen == ("concert", "stadium")


def test_synonyms__lead_both_ways_and_by_phrases() -> None:
    both = Synonyms([Rule(terms=("seats on offer", "capacity"), synonyms=("seats on offer", "capacity"))])
    assert _first(_linked("how many seats on offer", synonyms=both)) == "music.stadium"
    assert _first(_linked("how many seats on offer", synonyms=Synonyms([]))) != "music.stadium"


def test_hints__lead_from_what_is_asked_to_what_columns_are_called() -> None:
    linked = _linked("When was the largest concert in a stadium?", _music())
    assert linked.chosen == ("concert", "stadium")
    assert {column.column for column in linked.columns[:2]} == {"year", "capacity"}


def test_hints__are_names_and_phrases_too() -> None:
    assert "continent" in HINTS.expand("countries in Asia")
    assert "count" in HINTS.expand("how often was it used")


def test_parts__add_up_to_the_score() -> None:
    linked = _linked("year of the concert", evidence=Similarities(tables={("music", "concert"): 0.5}, columns={}))
    for parts, score in [(result.parts, result.score) for result in linked.tables] + [
        (result.parts, result.score) for result in linked.columns
    ]:
        assert sum(parts.values()) == pytest.approx(score)


def test_meaning__decides_where_words_say_nothing() -> None:
    similarities = Similarities(tables={("shop", "customer"): 0.9, ("music", "singer"): 0.1}, columns={})
    assert _first(_linked("zzz", evidence=similarities)) == "shop.customer"


def test_evidence_of_what_is_not_there__counts_for_nothing() -> None:
    similarities = Similarities(tables={("gone", "gone"): 0.9}, columns={("music", "singer", "gone"): 0.9})
    assert _first(_linked("stadium", evidence=similarities)) == "music.stadium"


def test_weights_of_nothing__leave_the_order_of_the_schemas() -> None:
    none = Weights(words=0, named=0, database=0, size=0, meaning=0, database_meaning=0, chosen=0)
    linker = Linker(NameIndex((_music(), _shop()), HINTS), none)
    entities = find_entities("customers", today=date(2026, 1, 1))
    assert linker.link("customers", entities, NOTHING, tables=2).tables[0].table == "singer"


@pytest.mark.parametrize(
    "schema",
    [
        DatabaseSchema(name="empty"),
        DatabaseSchema(name="bare", tables=(TableSchema(name="bare"),)),
        DatabaseSchema(name="odd", tables=(_table('🔥"order"', "🔥", "select", "id"), TableSchema(name="none"))),
    ],
)
def test_odd_schemas__are_linked(schema: DatabaseSchema) -> None:
    linked = _linked("select the order of 🔥", schema)
    assert len(linked.tables) == len(schema.tables)


def test_a_table_of_2000_columns__is_linked() -> None:
    wide = _table("wide", "id", *(f"measure_{number}" for number in range(1999)), "temperature")
    linked = _linked("temperature", DatabaseSchema(name="wide", tables=(wide,)))
    assert linked.columns[0].column == "temperature"


@pytest.mark.parametrize("question", ["capacity", "zzz", "name of 'Smith' since 2020", "value 7 of order 3"])
def test_the_best_columns__are_those_of_all_columns(question: str) -> None:
    chance = np.random.default_rng(7)
    names = ("name", "capacity", "year", "order", "value", "sum")
    tables = [
        _table(
            f"table_{number}", "id", *chance.choice(names, size=2, replace=False), "order_id", keys={"order_id": "o"}
        )
        for number in range(40)
    ]
    schema = DatabaseSchema(name="many", tables=(TableSchema(name="bare"), *tables, _table("o", "id", "total")))
    result = {("many", f"table_{number}", "id"): float(chance.random()) for number in range(0, 40, 7)}
    evidence = Similarities(tables={("many", "table_3"): 0.9, ("many", "bare"): 0.8}, columns=result)
    linker = Linker(NameIndex([_music(), schema], HINTS))
    entities = find_entities(question, values=linker.find_values(question), today=date(2026, 1, 1))
    every = linker.link(question, entities, evidence, tables=3)
    assert len(every.columns) in {162, 12}
    for limit in (1, 5, 30):
        best = linker.link(question, entities, evidence, tables=3, columns=limit).columns
        assert [(column.table, column.column) for column in best] == [
            (column.table, column.column) for column in every.columns[:limit]
        ]
        assert [column.score for column in best] == pytest.approx([column.score for column in every.columns[:limit]])


def test_keys_in_a_circle_and_to_itself__are_linked() -> None:
    schema = DatabaseSchema(
        name="circle",
        tables=(
            _table("one", "id", "two_id", "one_id", keys={"two_id": "two", "one_id": "one"}),
            _table("two", "id", "one_id", keys={"one_id": "one"}),
        ),
    )
    assert set(_linked("one and two", schema).chosen) == {"one", "two"}


@pytest.mark.parametrize("size", [1, 63, 64, 65, 640, 5_000])
@pytest.mark.parametrize("levels", [1, 2, 50, 100_000])
def test_best_scores__are_those_of_a_full_sort(size: int, levels: int) -> None:
    scores = np.random.default_rng(size).integers(levels, size=size) / levels
    expected = sorted(range(size), key=lambda at: (-scores[at], at))
    assert best_first(scores) == expected
    for limit in (1, 3, 10, size):
        assert best_first(scores, limit) == expected[:limit]


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("when was the forest fire concert", ["forest fire"]),
        ("Wie viele Concerts gab es", []),
        ("Concerts mit mehr als 30", []),
        ("cuántos de los concerts", []),
        ("concerts for die hard", ["die hard"]),
    ],
)
def test_names_of_rows__have_no_stop_words_of_the_question(question: str, names: list[str]) -> None:
    assert NameIndex([_music()], HINTS).row_names(question) == names
