"""The parts of a schema that a prompt has."""

from datetime import date

from kosmos_rag.retrieval.expansion.synonyms import Synonyms
from kosmos_rag.text2sql.catalog.guessed_keys import guess_keys
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.linking.entities import find_entities
from kosmos_rag.text2sql.linking.linking import Linker, Similarities
from kosmos_rag.text2sql.linking.name_index import NameIndex
from kosmos_rag.text2sql.linking.select import join_hints, select_parts
from kosmos_rag.text2sql.prompt import Selection, prompt_block, selection_as_json


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
    entities = find_entities(question, today=date(2026, 1, 1))
    linked = linker.link(question, entities, Similarities(tables={}, columns={}), tables=2)
    return select_parts(schema, linker, linked, (), entities=entities)


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
    assert join_hints(selection)[-1] == "award.player_id -> salary.player_id"


def test_a_guessed_key__is_said_to_be_a_guess() -> None:
    schema = guess_keys(
        DatabaseSchema(
            name="shop", tables=(_table("orders", "customer_id", "total"), _table("customers", "customer_id"))
        )
    )
    selection = _selection(schema, "total of the orders of customers")
    assert join_hints(selection) == ("orders.customer_id -> customers.customer_id (guess)",)
    prompt = prompt_block(selection, max_tokens=500, count=len).text
    assert "orders.customer_id = customers.customer_id -- guessed by names" in prompt
    (plan,) = selection_as_json(selection)["joins"]
    assert plan["paths"][0]["guessed"]
