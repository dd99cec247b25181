"""What was chosen, as a prompt and as JSON."""

import json
from dataclasses import replace

from kosmos_rag.text2sql.ambiguity import find_ambiguities
from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.prompt import Selection, prompt_block, selection_as_json
from kosmos_rag.text2sql.recipes import template_recipes
from tests.unit.text2sql.catalog.worlds import database, table


def _count(text: str) -> int:
    return len(text.split())


def _selection(schema: DatabaseSchema) -> Selection:
    tables = ("program_statistics", "programs")
    columns = (("program_statistics", "success_count"), ("programs", "name"))
    plans = JoinGraph(schema).plans(tables)
    return Selection(
        schema=schema,
        tables=tables,
        references=columns,
        columns=columns,
        plans=plans,
        ambiguities=find_ambiguities(schema, tables, columns, plans),
        recipes=tuple(template_recipes(schema)[:2]),
    )


def test_prompt__with_room_says_all(example: DatabaseSchema) -> None:
    block = prompt_block(_selection(example), max_tokens=10_000, count=_count)
    assert block.text.startswith(
        "Database programs (postgresql)\nprogram_statistics(id INTEGER PK, program_id INTEGER -> "
    )
    for part in (
        "avg_execution_time", "-- Programs that can be run", "lifecycle VARCHAR(20) 'draft'|'active'|'retired'",
        "Joins:\nprogram_statistics.program_id = programs.id", "To settle:\nIf multiple rows", "Recipes:\n",
    ):  # fmt: skip
        assert part in block.text
    assert block.left_out == ()
    assert block.tokens == _count(block.text)


def test_prompt__never_exceeds_its_budget_and_grows_with_it(example: DatabaseSchema) -> None:
    sizes = []
    for budget in range(0, 300, 7):
        block = prompt_block(_selection(example), max_tokens=budget, count=_count)
        assert block.tokens <= budget
        assert set(block.left_out) <= {"program_statistics", "programs"}
        if "programs" in block.left_out or "program_statistics" in block.left_out:
            assert "Joins:" not in block.text
        sizes.append(block.tokens)
    assert sizes[0] == 0
    assert sizes[-1] > 100


def test_prompt__shows_needed_columns_and_keys_before_others(example: DatabaseSchema) -> None:
    block = prompt_block(_selection(example), max_tokens=32, count=_count)
    assert "success_count" in block.text
    assert "failure_count" not in block.text
    assert ", …)" in block.text


def test_prompt__quotes_names_and_shows_self_joins() -> None:
    schema = database(table("order", 'to"tal', "Prev", keys={"Prev": "order.id"}))
    plans = JoinGraph(schema).plans(["order"])
    selection = Selection(schema=schema, tables=("order",), references=(("order", 'to"tal'),), plans=plans)
    text = prompt_block(selection, max_tokens=100, count=_count).text
    assert text.splitlines()[1:] == [
        '"order"(id integer PK, "to""tal" text, "Prev" text -> order.id)',
        "Joins:",
        "order with itself: order.Prev -> order.id",
    ]


def test_prompt__shows_further_joins_where_both_tables_stand() -> None:
    schema = database(table("singers"), table("songs", "singer_id", keys={"singer_id": "singers.id"}))
    graph = JoinGraph(schema)
    further = graph.plans(["singers", "songs"])[0].paths[0].joins
    needed = Selection(
        schema=schema, tables=("singers",), references=(), plans=graph.plans(["singers"]), further=further
    )
    assert "Joins:" not in prompt_block(needed, max_tokens=100, count=_count).text
    text = prompt_block(replace(needed, tables=("singers", "songs")), max_tokens=100, count=_count).text
    assert text.splitlines()[3:5] == ["Joins:", "if needed songs.singer_id = singers.id"]
    assert selection_as_json(needed)["further_joins"] == ["songs.singer_id -> singers.id"]


def test_prompt__shows_likely_columns_where_not_all_fit() -> None:
    wide = table("runs", "started text", "result text", *(f"measure_{number} text" for number in range(50)))
    selection = Selection(
        schema=database(wide),
        tables=("runs",),
        references=(("runs", "result"),),
        columns=(("runs", "result"), ("runs", "started"), ("runs", "measure_7")),
    )
    text = prompt_block(selection, max_tokens=20, count=_count).text
    assert text.splitlines()[1] == "runs(id integer PK, started text, result text, measure_7 text, …)"


def test_json__has_references_joins_and_what_is_open(example: DatabaseSchema) -> None:
    data = json.loads(json.dumps(selection_as_json(_selection(example))))
    assert data["columns"][0] == {"table": "program_statistics", "column": "success_count"}
    assert data["tables"][0]["model"] == "ProgramStatistics"
    assert data["joins"][0]["paths"] == [
        {
            "hints": ["program_statistics.program_id -> programs.id"],
            "conditions": ["program_statistics.program_id = programs.id"],
            "bridges": [],
            "guessed": False,
        }
    ]
