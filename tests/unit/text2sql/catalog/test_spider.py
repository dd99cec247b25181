"""Spider's files as a source, and the gold of its questions."""

import json
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.text2sql.catalog.model import DatabaseSchema, ForeignKey
from kosmos_rag.text2sql.catalog.sources import from_spider
from kosmos_rag.text2sql.errors import SchemaInvalid
from kosmos_rag.text2sql.sql.gold import gold_question, read_questions

DATABASE: dict[str, Any] = {
    "db_id": "league",
    "table_names": ["soccer team", "match", "seat"],
    "table_names_original": ["team", "Match", "seat"],
    "column_names": [
        [-1, "*"], [0, "id"], [0, "team name"], [1, "home"], [1, "away"], [1, "hall"], [1, "row"],
        [2, "hall"], [2, "row"]
    ],
    "column_names_original": [
        [-1, "*"], [0, "ID"], [0, "Nm"], [1, "home"], [1, "away"], [1, "hall"], [1, "row"],
        [2, "hall"], [2, "row"]
    ],
    "column_types": ["text", "number", "text", "number", "number", "text", "number", "text", "number"],
    "primary_keys": [1, [7, 8]],
    "foreign_keys": [[3, 1], [4, 1], [5, 7], [6, 8]],
}  # fmt: skip


def _file(folder: Path, data: Any) -> Path:
    (folder / "tables.json").write_text(json.dumps(data))
    return folder / "tables.json"


def test_tables__with_natural_names_and_composite_keys(tmp_path: Path) -> None:
    (schema,) = from_spider(_file(tmp_path, [DATABASE]))
    team, match, seat = schema.tables
    assert (team.aliases, match.aliases, team.columns[1].aliases) == (("soccer team",), (), ("team name",))
    assert (team.primary_key, seat.primary_key) == (("ID",), ("hall", "row"))
    assert match.foreign_keys == (
        ForeignKey(columns=("home",), table="team", target=("ID",)),
        ForeignKey(columns=("away",), table="team", target=("ID",)),
        ForeignKey(columns=("hall", "row"), table="seat", target=("hall", "row")),
    )


def test_tables__without_natural_names_and_keys_have_neither(tmp_path: Path) -> None:
    bare = {key: value for key, value in DATABASE.items() if key.endswith(("_original", "_types", "_id"))}
    team, match, _ = from_spider(_file(tmp_path, [bare]))[0].tables
    assert [column.name for column in team.columns] == ["ID", "Nm"]
    assert (team.aliases, team.columns[1].aliases, team.primary_key, match.foreign_keys) == ((), (), (), ())


def test_tables__whose_types_leave_out_the_first_column(tmp_path: Path) -> None:
    shifted = {**DATABASE, "column_types": DATABASE["column_types"][1:]}
    assert from_spider(_file(tmp_path, [shifted])) == from_spider(_file(tmp_path, [DATABASE]))


def test_tables__take_the_first_of_two_columns_with_one_name(tmp_path: Path) -> None:
    twice = {
        **DATABASE,
        "column_names_original": [*DATABASE["column_names_original"], [0, "Nm"]],
        "column_names": [*DATABASE["column_names"], [0, "another name"]],
        "column_types": [*DATABASE["column_types"], "number"],
    }
    team = from_spider(_file(tmp_path, [twice]))[0].tables[0]
    assert [(column.name, column.type, column.aliases) for column in team.columns] == [
        ("ID", "number", ()),
        ("Nm", "text", ("team name",)),
    ]


STATES = {"AK": "Alaska", "IN": "Indiana"}


def test_tables__have_the_descriptions_and_values_of_the_file(tmp_path: Path) -> None:
    described = {
        **DATABASE,
        "db_overview": "Games of a league.",
        "column_descriptions": ["*", "the id of the team", "Name of the club", *["the rest"] * 6],
        "column_names_manually_normalized_alternative": [
            [table, "club" if name == "team name" else name] for table, name in DATABASE["column_names"]
        ],
        "value_enums": {"Nm": STATES},
    }
    (schema,) = from_spider(_file(tmp_path, [described]))
    identifier, name = schema.tables[0].columns
    assert schema.comment == "Games of a league."
    assert (identifier.comment, name.comment) == (None, "Name of the club"), "the first one repeats the names"
    assert (name.aliases, name.labels) == (("team name", "club"), tuple(STATES.items()))


def test_values__that_columns_of_different_kinds_share_describe_none(tmp_path: Path) -> None:
    def labels(*names: str) -> list[bool]:
        (schema,) = from_spider(_file(tmp_path, [{**DATABASE, "value_enums": dict.fromkeys(names, STATES)}]))
        return [bool(column.labels) for table in schema.tables for column in table.columns if column.name in names]

    assert labels("hall") == [True, True]
    assert labels("hall", "row") == [False] * 4


def test_tables__of_another_shape_are_refused_with_every_database(tmp_path: Path) -> None:
    broken = {**DATABASE, "foreign_keys": [[99, 1]]}
    with pytest.raises(SchemaInvalid) as caught:
        from_spider(_file(tmp_path, [broken, DATABASE, {}]))
    assert [problem[:3] for problem in caught.value.problems] == ["[0]", "[2]"]


@pytest.fixture
def league(tmp_path: Path) -> DatabaseSchema:
    return from_spider(_file(tmp_path, [DATABASE]))[0]


@pytest.mark.parametrize(
    ("sql", "tables", "columns"),
    [
        ("SELECT count(*) FROM MATCH", {"Match"}, set()),
        ('SELECT nm FROM Team WHERE nm = "Ajax"', {"team"}, {"team.Nm"}),
        ("SELECT nm FROM team WHERE id IN (SELECT home FROM match)", {"team", "Match"},
         {"team.Nm", "team.ID", "Match.home"}),
        ("SELECT x.n FROM (SELECT nm AS n, id FROM team) AS x WHERE x.id > 1", {"team"}, {"team.Nm", "team.ID"}),
        ("SELECT nm FROM team EXCEPT SELECT hall FROM seat", {"team", "seat"}, {"team.Nm", "seat.hall"}),
        ("SELECT home, count(*) AS n FROM match GROUP BY home ORDER BY n DESC", {"Match"}, {"Match.home"}),
    ],
)  # fmt: skip
def test_gold__is_what_the_sql_names(league: DatabaseSchema, sql: str, tables: set[str], columns: set[str]) -> None:
    gold = gold_question("?", sql, league)
    assert set(gold.tables) == tables
    assert {f"{table}.{column}" for table, column in gold.columns} == columns
    assert gold.joins == ()


def test_gold__joins_are_equalities_between_tables(league: DatabaseSchema) -> None:
    sql = (
        "SELECT T2.nm FROM match AS T1 JOIN team AS T2 ON T1.home = T2.id JOIN team AS T3 ON T3.id = T1.away "
        "WHERE T1.hall = T1.row AND T2.nm = T3.nm"
    )
    assert set(gold_question("?", sql, league).joins) == {
        (("Match", "home"), ("team", "ID")),
        (("Match", "away"), ("team", "ID")),
        (("team", "Nm"), ("team", "Nm")),
    }


def test_questions__that_do_not_fit_are_all_named(league: DatabaseSchema, tmp_path: Path) -> None:
    rows = [
        {"db_id": "league", "question": "a", "query": "SELECT nm FROM team"},
        {"db_id": "nowhere", "question": "b", "query": "SELECT 1"},
        {"db_id": "league", "question": "c", "query": "SELECT x FROM team"},
        {"db_id": "league", "question": "d", "query": "SELECT nm FROM tema"},
        {"db_id": "league", "question": "e"},
    ]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    with pytest.raises(SchemaInvalid) as caught:
        read_questions(tmp_path / "questions.json", [league])
    assert [problem[:3] for problem in caught.value.problems] == ["[1]", "[2]", "[3]", "[4]"]
    assert "did you mean team?" in caught.value.problems[2]


def test_gold__of_all_spider_questions(datasets: Path) -> None:
    folder = datasets / "spider"
    if not folder.is_dir():
        pytest.skip(f"no Spider in {datasets}")
    schemas = from_spider(folder / "tables.json")
    assert (len(schemas), sum(len(schema.tables) for schema in schemas)) == (166, 876)
    gold = read_questions(folder / "questions.json", schemas)
    assert len(gold) == 493
    names = {schema.name: schema for schema in schemas}
    for question in gold:
        for table, column in question.columns:
            result = names[question.database].table(table)
            assert result is not None
            assert result.column(column) is not None
    joined = [question for question in gold if " JOIN " in question.sql.upper()]
    assert all(question.joins for question in joined)
