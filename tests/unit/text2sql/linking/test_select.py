"""The parts of a schema that a prompt has."""

from datetime import date

import pytest

from kosmos_rag.retrieval.expansion.synonyms import Synonyms
from kosmos_rag.text2sql.catalog.guessed_keys import guess_keys
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.linking.entities import find_entities
from kosmos_rag.text2sql.linking.linking import Linker, Similarities
from kosmos_rag.text2sql.linking.name_index import NameIndex
from kosmos_rag.text2sql.linking.select import select_parts
from kosmos_rag.text2sql.prompt import Selection, prompt_block, selection_as_json
from kosmos_rag.text2sql.records import Recipe


def _table(name: str, *columns: str, keys: dict[str, str] | None = None) -> TableSchema:
    return TableSchema(
        name=name,
        columns=tuple(ColumnSchema(name=column, type="text") for column in columns),
        foreign_keys=tuple(
            ForeignKey(columns=(column,), table=table, target=(column,)) for column, table in (keys or {}).items()
        ),
    )


def _selection(schema: DatabaseSchema, question: str) -> Selection:
    linker = Linker(NameIndex([schema], Synonyms([])))
    entities = find_entities(question, row_names=linker.row_names, today=date(2026, 1, 1))
    linked = linker.link(question, entities, Similarities(tables={}, columns={}), tables=2)
    return select_parts(schema, linker, linked, (), question=question, entities=entities)


def test_tables_with_one_parent__have_a_join_past_it() -> None:
    keys = {"player_id": "hall"}
    schema = DatabaseSchema(
        name="league",
        tables=(
            _table("hall", "player_id", "votes"),
            _table("award", "player_id", "prize", keys=keys),
            _table("salary", "player_id", "amount", keys=keys),
        ),
    )
    selection = _selection(schema, "prize and amount of award and salary")
    assert [join.hint for join in selection.further] == ["award.player_id -> salary.player_id"]
    assert selection.join_hints[-1] == "award.player_id -> salary.player_id"


def test_a_guessed_key__is_said_to_be_a_guess() -> None:
    schema = guess_keys(
        DatabaseSchema(
            name="shop", tables=(_table("orders", "customer_id", "total"), _table("customers", "customer_id"))
        )
    )
    selection = _selection(schema, "total of the orders of customers")
    assert selection.join_hints == ("orders.customer_id -> customers.customer_id (guess)",)
    prompt = prompt_block(selection, max_tokens=500, count=len).text
    assert "orders.customer_id = customers.customer_id -- guessed by names" in prompt
    (plan,) = selection_as_json(selection)["joins"]
    assert plan["paths"][0]["guessed"]


def _programs(name: ColumnSchema) -> DatabaseSchema:
    statistics = TableSchema(
        name="program_statistics",
        columns=(ColumnSchema(name="program_id", type="integer"), ColumnSchema(name="usage_count", type="integer")),
        foreign_keys=(ForeignKey(columns=("program_id",), table="programs", target=("id",)),),
    )
    programs = TableSchema(
        name="programs", columns=(ColumnSchema(name="id", type="integer"), name), primary_key=("id",)
    )
    return DatabaseSchema(name="runs", tables=(statistics, programs))


@pytest.mark.parametrize(
    ("question", "conditions"),
    [
        ("usage count of the forest fire program", ["programs.name = 'forest fire'"]),
        ('usage count of the program "night watch"', ["programs.name = 'night watch'"]),
        ("usage count greater than 100 for snow melt",
         ["programs.name = 'snow melt'", "program_statistics.usage_count > 100"]),
        ("programs with more than 5 runs", []),
    ],
)  # fmt: skip
def test_names_and_numbers__are_conditions_without_known_values(question: str, conditions: list[str]) -> None:
    selection = _selection(_programs(ColumnSchema(name="name", type="text")), question)
    assert [item.condition for item in selection.filters] == conditions
    assert all(item.match in ("unchecked", "number") for item in selection.filters)
    prompt = prompt_block(selection, max_tokens=500, count=len).text
    assert ("not looked up" in prompt) == any("name" in condition for condition in conditions)


def test_a_name__is_no_condition_where_all_values_are_known() -> None:
    selection = _selection(_programs(ColumnSchema(name="name", enum=("A", "B"))), "usage of the forest fire program")
    assert selection.filters == ()


def test_a_recipe__says_what_it_is_not() -> None:
    recipe = Recipe(
        slug="uses",
        title="number of uses",
        text="Return usage_count.",
        pattern="aggregation",
        tables=("program_statistics",),
        columns=(("program_statistics", "usage_count"),),
        not_for=("success rate", "share of failures"),
    )
    selection = Selection(
        schema=_programs(ColumnSchema(name="name")), tables=("program_statistics",), references=(), recipes=(recipe,)
    )
    text = prompt_block(selection, max_tokens=500, count=len).text
    assert "Return usage_count. It is not success rate, nor share of failures." in text
