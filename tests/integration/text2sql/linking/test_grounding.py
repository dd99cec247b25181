"""Grounding over a collection: built, asked, brought up to date, as its readers see it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, TableSchema
from kosmos_rag.text2sql.catalog.sources import from_json
from kosmos_rag.text2sql.errors import QueryRefused, SchemaInvalid
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.linking.result import NO_SCHEMA
from kosmos_rag.text2sql.recipes import read_recipes, template_recipes
from kosmos_rag.text2sql.records import Recipe
from kosmos_rag.text2sql.settings import Text2SqlSettings
from tests.integration.variants import opened

EXAMPLE = Path(__file__).parents[4] / "examples" / "schema"


@pytest.fixture(scope="module")
def schema() -> DatabaseSchema:
    """The example schema."""
    return from_json(EXAMPLE / "programs.json")


@pytest.fixture(scope="module")
def recipes(schema: DatabaseSchema) -> list[Recipe]:
    """Its recipes written by hand."""
    return read_recipes(EXAMPLE / "recipes.yaml", schema)


@pytest.fixture
def scope(engine: Engine, tenant_name: str) -> Tenant:
    """A collection that goes by the preset."""
    engine.tenant(tenant_name).collections.create("schema", preset="schema")
    return engine.tenant(tenant_name, collection="schema")


def _small(*columns: str) -> DatabaseSchema:
    schemas = tuple(ColumnSchema(name=name, type="text", comment=f"about {name}") for name in columns)
    return DatabaseSchema(name="small", dialect="sqlite", tables=(TableSchema(name="things", columns=schemas),))


def test_a_schema__is_read_back_from_its_documents_as_it_was(
    scope: Tenant, schema: DatabaseSchema, recipes: list[Recipe]
) -> None:
    grounding = SchemaGrounding(scope)
    report = grounding.build(schema, recipes)
    assert (report.ingest.failed, report.unchanged) == ((), False)
    assert report.ingest.chunks == report.ingest.new, "each document is one chunk"
    (stored,) = grounding.schemas()
    assert stored.fingerprint() == schema.fingerprint() == report.fingerprint
    again = grounding.build(schema, recipes)
    assert again.unchanged
    assert (again.ingest.new, again.ingest.changed, again.removed) == (0, 0, 0)


def test_an_overview_and_the_meanings_of_codes__are_read_back_and_used(scope: Tenant) -> None:
    state = ColumnSchema(name="st", type="text", labels=(("AK", "Alaska"), ("IN", "Indiana")))
    tables = (TableSchema(name="shops", columns=(ColumnSchema(name="owner", type="text"), state)),)
    schema = DatabaseSchema(name="chain", comment="Shops of a chain of bakeries.", tables=tables)
    grounding = SchemaGrounding(scope)
    grounding.build(schema)
    (stored,) = grounding.schemas()
    assert stored.fingerprint() == schema.fingerprint()
    result = grounding.ask("bakeries in Indiana")
    assert [(ref.table, ref.column) for ref in result.schema_refs] == [("shops", "st")]
    assert [item.condition for item in result.filters] == ["shops.st = 'IN'"]
    assert "'AK'=Alaska" in result.prompt


def test_a_schema_that_cannot_be_read_back__is_not_stored(scope: Tenant) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(_small("colour"))
    table = TableSchema(name="other", comment="a\x00b", columns=(ColumnSchema(name="size"),))
    broken = DatabaseSchema(name="broken", tables=(table,))
    with pytest.raises(SchemaInvalid):
        grounding.build(broken)
    with pytest.raises(SchemaInvalid):
        grounding.build_all([broken])
    assert grounding.ask("colour").database == "small"


def test_keys_to_other_databases_and_tables_without_columns__leave_a_schema_unchanged(scope: Tenant) -> None:
    key = ForeignKey(columns=("owner",), table="auth.users", target=("id",))
    things = replace(_small("owner").tables[0], foreign_keys=(key,))
    grounding = SchemaGrounding(scope)
    schema = DatabaseSchema(name="small", tables=(things, TableSchema(name="bare")))
    grounding.build(schema)
    assert grounding.build(schema).unchanged


def test_columns_with_a_dot__keep_their_table(scope: Tenant, tmp_path: Path) -> None:
    columns = (ColumnSchema(name="id", type="integer"), ColumnSchema(name="address.city", type="text"))
    schema = DatabaseSchema(name="crm", tables=(TableSchema(name="sales.people", columns=columns),))
    path = tmp_path / "recipes.yaml"
    path.write_text(
        "recipes: [{slug: town, title: town of a person, text: Return the city., pattern: status,"
        " tables: [sales.people], columns: [sales.people.address.city], not_for: [town hall]}]"
    )
    recipes = read_recipes(path, schema)
    assert recipes[0].columns == (("sales.people", "address.city"),)
    grounding = SchemaGrounding(scope)
    grounding.build(schema, recipes)
    grounding.build(schema)
    assert recipes[0] in grounding.ask("town of a person").recipes
    (note,) = grounding.ask("people and the town hall").ambiguities
    assert (note.kind, note.about) == ("excluded", ("sales.people.address.city",))
    query = """SELECT "address.city" FROM "sales.people" """
    accepted = grounding.add_example("Where do people live?", query, database="crm")
    assert accepted.columns == (("sales.people", "address.city"),)
    assert grounding.examples() == [accepted]


RETIRED = "How many programs are retired?"
COUNTED = "SELECT count(*) FROM programs WHERE lifecycle = 'retired'"


def test_accepted_query__is_shown_for_similar_questions_to_its_readers(
    engine: Engine, scope: Tenant, schema: DatabaseSchema
) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(schema)
    grounding.add_example(RETIRED, "SELECT 1 FROM programs", database=schema.name)
    accepted = grounding.add_example(f" {RETIRED.upper()}", f"{COUNTED};\n", database=schema.name, acl=("user:ann",))
    assert (accepted.sql, accepted.tables, accepted.columns) == (COUNTED, ("programs",), (("programs", "lifecycle"),))
    with pytest.raises(QueryRefused):
        grounding.add_example("Delete all", "DELETE FROM programs", database=schema.name)
    with pytest.raises(RequestError, match="no database 'other'"):
        grounding.add_example(RETIRED, COUNTED, database="other")

    ann = SchemaGrounding(engine.tenant(scope.name, principals=("everyone", "user:ann"), collection="schema"))
    assert ann.examples() == [accepted]
    answer = ann.ask("How many of the programs are retired now?")
    assert answer.examples == (accepted,)
    assert COUNTED in answer.prompt
    assert answer.to_dict()["examples"] == [accepted.to_dict()]
    others = SchemaGrounding(engine.tenant(scope.name, principals=("everyone",), collection="schema"))
    assert others.examples() == []
    assert COUNTED not in others.ask(RETIRED).prompt


def test_accepted_query__is_kept_while_it_fits_the_schema(scope: Tenant, schema: DatabaseSchema) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(schema)
    accepted = grounding.add_example(RETIRED, COUNTED, database=schema.name)
    changed = replace(schema, tables=tuple(replace(table, comment="changed") for table in schema.tables))
    grounding.build(changed)
    assert grounding.examples() == [accepted]
    grounding.build(replace(_small("a"), name=schema.name))
    assert grounding.examples() == []
    assert not [info for info in scope.documents() if info.metadata["kind"] == "query_example"]


def test_recipe__says_what_a_column_does_not_answer(scope: Tenant, schema: DatabaseSchema, tmp_path: Path) -> None:
    file = tmp_path / "recipes.yaml"
    recipe: dict[str, Any] = {"slug": "successes", "title": "number of successes", "text": "Return it."}
    recipe |= {"pattern": "aggregation", "tables": ["program_statistics"]}
    recipe |= {"columns": ["program_statistics.success_count"]}
    file.write_text(json.dumps({"recipes": [{**recipe, "not_for": ["the", "success rates"]}]}))
    with pytest.raises(SchemaInvalid, match='not_for: "the" has no word'):
        read_recipes(file, schema)
    file.write_text(json.dumps({"recipes": [{**recipe, "not_for": ["success rates"]}]}))
    grounding = SchemaGrounding(scope)
    grounding.build(schema, read_recipes(file, schema))
    excluded = grounding.ask("What is the rate of success of programs?")
    assert "ProgramStatistics.success_count" not in [ref.name for ref in excluded.schema_refs]
    assert excluded.ambiguities[0].kind == "excluded"
    assert "program_statistics.success_count does not answer questions about success rates." in excluded.prompt
    assert "successes" not in [outcome.slug for outcome in excluded.recipes]
    answer = grounding.ask("What is the success count of programs?")
    assert answer.schema_refs[0].name == "ProgramStatistics.success_count"
    assert "excluded" not in [outcome.kind for outcome in answer.ambiguities]
    grounding.build(schema)
    assert grounding.ask("What is the rate of success of programs?").ambiguities[0].kind == "excluded", "it is kept"


def test_synonyms__are_suggested_by_accepted_queries(scope: Tenant, schema: DatabaseSchema) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(schema)
    for question in ("Which programs are in sunset?", "Count sunset programs", "Is forest fire in sunset?"):
        grounding.add_example(question, "SELECT count(lifecycle) FROM programs", database=schema.name)
    assert ("sunset", "lifecycle") in [
        (suggestion.word, suggestion.name) for suggestion in grounding.suggest_synonyms()
    ]
    assert grounding.suggest_synonyms(minimum=4) == []


def test_a_question__is_given_references_joins_recipes_and_what_is_open(
    scope: Tenant, schema: DatabaseSchema, recipes: list[Recipe]
) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(schema, recipes)
    result = grounding.ask("What is the success count for the forest fire program", max_tokens=600)
    assert result.database == schema.name
    names = [ref.name for ref in result.schema_refs]
    assert "ProgramStatistics.success_count" in names
    assert len(names) == len(set(names)) <= 10
    assert [ref.score for ref in result.schema_refs] == sorted((ref.score for ref in result.schema_refs), reverse=True)
    assert "program_statistics.program_id -> programs.id" in result.join_hints
    assert names[0] == "ProgramStatistics.success_count", "what is asked for, before the keys of joins"
    assert "ProgramStatistics.program_id" not in names
    assert [ambiguity.kind for ambiguity in result.ambiguities].count("variant") == 1
    assert result.recipes[0].curated
    assert result.prompt.count("depending on requested semantics") == 1, "the note of the recipe is not repeated"
    payload = result.to_dict()
    assert [recipe["slug"] for recipe in payload["recipes"]] == [recipe.slug for recipe in result.recipes]
    assert {"ambiguities", "filters", "recipes"} <= result.to_dict(explain=False).keys()
    assert "variant" not in {ambiguity.kind for ambiguity in grounding.ask("Which programs are active?").ambiguities}
    (ambiguity,) = grounding.ask("Which programs are retired?").filters
    assert (ambiguity.condition, ambiguity.match) == ("programs.lifecycle = 'retired'", "exact")
    assert "programs.lifecycle = 'retired'" in grounding.ask("Which programs are retired?").prompt
    typo = grounding.ask("Which programs are retierd?")
    assert [(item.text, item.condition, item.match) for item in typo.filters] == [
        ("retierd", "programs.lifecycle = 'retired'", "fuzzy")
    ]
    assert "programs.lifecycle = 'retired' -- retierd" in typo.prompt
    assert "program_statistics" in result.prompt
    assert 0 < result.tokens <= 600
    assert result.to_dict()["selection"]["database"] == schema.name
    assert all(doc.signals or doc.score_contributions for doc in result.docs), "each score is accounted for"


@pytest.mark.parametrize(
    ("choice", "decision"),
    [("sum", "Sum across the rows of variants ("), ("base", "Leave out the rows of variants: ")],
)
def test_variants__are_settled_in_the_prompt_by_the_settings(
    settings: Settings, tenant_name: str, schema: DatabaseSchema, recipes: list[Recipe], choice: str, decision: str
) -> None:
    with opened(settings, {}) as engine:
        engine.tenant(tenant_name).collections.create("schema", preset="schema")
        SchemaGrounding(engine.tenant(tenant_name, collection="schema")).build(schema, recipes)
    section = settings.section(Text2SqlSettings).model_copy(update={"variants": choice})
    with opened(settings.model_copy(update={"text2sql": section}), {}) as engine:
        grounding = SchemaGrounding(engine.tenant(tenant_name, collection="schema"))
        result = grounding.ask("What is the success count of the forest fire program?")
    (ambiguity,) = [ambiguity for ambiguity in result.ambiguities if ambiguity.kind == "variant"]
    assert ambiguity.settled
    assert ambiguity.text.startswith(decision)
    assert ambiguity.text in result.prompt
    assert "depending on requested semantics" not in result.prompt
    assert "Settled:" in result.prompt


def test_what_is_gone_from_the_schema__is_gone_from_the_answers(scope: Tenant) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(_small("colour", "weight"))
    report = grounding.build(_small("colour"))
    assert report.removed == 1
    assert report.ingest.changed == 1, "the table's document lists its columns"
    assert [ref.column for ref in grounding.ask("weight of things").schema_refs] == ["colour"]


def _by_hand(scope: Tenant) -> dict[str, int]:
    """The versions of the recipes written by hand, by slug."""
    return {info.metadata["slug"]: info.version for info in scope.documents() if info.metadata.get("curated")}


def _recipe(slug: str, column: str) -> Recipe:
    return Recipe(
        slug=slug,
        title=f"{column} of a thing",
        text=f"Return things.{column}.",
        pattern="aggregation",
        tables=("things",),
        columns=(("things", column),),
        note="Ask first.",
        curated=True,
        sql=f"SELECT {column} FROM things",
    )


def test_recipes_written_by_hand__stay_as_they_are_where_none_are_given(scope: Tenant) -> None:
    grounding = SchemaGrounding(scope)
    heavy = _recipe("heavy", "weight")
    grounding.build(_small("colour", "weight"), [_recipe("red", "colour"), heavy])
    report = grounding.build(_small("colour", "weight", "height"))
    assert (report.removed, _by_hand(scope)) == (0, {"red": 1, "heavy": 1})
    assert grounding.build(_small("weight")).removed == 3, "two columns, and the recipe that names one"
    assert _by_hand(scope) == {"heavy": 1}
    answer = grounding.ask("weight of a thing")
    assert answer.selection is not None
    assert answer.selection.recipes == (heavy,)


def test_recipes_written_by_hand__make_way_for_those_that_are_given(
    scope: Tenant, schema: DatabaseSchema, recipes: list[Recipe]
) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(_small("colour"), [_recipe("red", "colour")])
    grounding.build(schema, recipes)
    assert grounding.build(schema, recipes[1:]).removed == 1
    assert len(_by_hand(scope)) == len(recipes)
    assert grounding.build(schema, []).removed == len(recipes) - 1
    assert _by_hand(scope) == {"red": 1}, "that of another database"
    slugs = {info.metadata["slug"] for info in scope.documents() if info.metadata["kind"] == "query_recipe"}
    assert {recipe.slug for recipe in template_recipes(schema)} < slugs, "what follows from keys comes by itself"


def test_recipes_written_by_hand__are_for_the_readers_of_the_latest_build(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).collections.create("schema", preset="schema")
    both = engine.tenant(tenant_name, principals=("everyone", "role:hr"), collection="schema")
    SchemaGrounding(both).build(_small("salary"), [_recipe("wages", "salary")])
    SchemaGrounding(both).build(_small("salary"), acl=("role:hr",))
    assert list(_by_hand(both)) == ["wages"]
    assert engine.tenant(tenant_name, collection="schema").documents() == []


def test_another_process__sees_a_change_with_the_next_question(scope: Tenant) -> None:
    schema_grounding = SchemaGrounding(scope)
    SchemaGrounding(scope).build(_small("colour"))
    assert len(schema_grounding.ask("colour of things").schema_refs) == 1
    SchemaGrounding(scope).build(_small("colour", "weight"))
    assert [ref.column for ref in schema_grounding.ask("weight of things").schema_refs] == ["weight"]


def test_databases_of_one_collection__are_kept_apart(scope: Tenant, schema: DatabaseSchema) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(schema)
    grounding.build(_small("colour"))
    assert {outcome.name for outcome in grounding.schemas()} == {schema.name, "small"}
    answer = grounding.ask("colour of the program", database="small")
    assert {table.database for table in answer.tables} == {"small"}
    assert grounding.ask("programs by status", tables=3).database == schema.name


def test_readers__see_what_they_may_read_and_no_more(engine: Engine, tenant_name: str) -> None:
    collections = engine.tenant(tenant_name).collections
    collections.create("schema", preset="schema")
    hidden = replace(_small("salary"), name="hidden")
    both = engine.tenant(tenant_name, principals=("everyone", "role:hr"), collection="schema")
    SchemaGrounding(both).build(_small("colour"))
    SchemaGrounding(both).build(hidden, acl=("role:hr",))
    outside = SchemaGrounding(engine.tenant(tenant_name, collection="schema")).ask("salary of things")
    assert {table.database for table in outside.tables} == {"small"}
    assert "hidden" not in str(outside.to_dict())
    assert SchemaGrounding(both).ask("salary of things").database == "hidden"


def test_what_a_reader_loses__is_named_no_more(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).collections.create("schema", preset="schema")
    both = engine.tenant(tenant_name, principals=("everyone", "role:hr"), collection="schema")
    SchemaGrounding(both).build(_small("colour", "salary"))
    schema_grounding = SchemaGrounding(engine.tenant(tenant_name, collection="schema"))
    assert "salary" in schema_grounding.ask("colour of things").prompt
    SchemaGrounding(both).build(_small("colour", "salary"), acl=("role:hr",))
    assert schema_grounding.ask("colour of things").tables == ()
    assert schema_grounding.schemas() == []


def test_schemas__are_read_once_while_nothing_changes(scope: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    SchemaGrounding(scope).build(_small("colour"))
    schema_grounding = SchemaGrounding(scope)
    schema_grounding.ask("colour of things")
    monkeypatch.setattr(Tenant, "documents", None)
    assert schema_grounding.ask("colour of things").database == "small"


def test_the_joins_to_the_next_table__come_after_those_between_the_needed_ones(
    scope: Tenant, schema: DatabaseSchema
) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(schema)
    result = grounding.ask("names of the programs")
    assert result.selection is not None
    assert result.selection.plans[0].tables == ("programs",)
    further = tuple(join.hint for join in result.selection.further)
    assert further
    assert all("programs." in hint for hint in further)
    assert result.join_hints == further
    assert result.to_dict()["selection"]["further_joins"] == list(further)


def test_an_empty_collection__answers_with_nothing(scope: Tenant) -> None:
    result = SchemaGrounding(scope).ask("anything")
    assert (result.database, result.tables, result.prompt, result.tokens) == (None, (), "", 0)
    assert result.warnings == (NO_SCHEMA,)


def test_a_database_that_is_not_there__is_named(scope: Tenant) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(_small("colour"))
    with pytest.raises(RequestError, match="no database 'large'; known are small"):
        grounding.ask("colour", database="large")


@pytest.mark.parametrize("wrong", [{"k": 0}, {"tables": 0}, {"max_tokens": 0}])
def test_numbers_that_ask_for_nothing__are_refused(scope: Tenant, wrong: dict[str, int]) -> None:
    with pytest.raises(RequestError, match="at least 1"):
        SchemaGrounding(scope).ask("colour", **wrong)  # type: ignore[arg-type]


def test_a_broken_file_of_synonyms__is_named(scope: Tenant, tmp_path: Path) -> None:
    path = tmp_path / "synonyms.yaml"
    path.write_text("- [one]\n")
    with pytest.raises(ConfigError, match="line 1"):
        SchemaGrounding(scope, synonyms=path)


def test_a_quoted_value__is_no_phrase_that_documents_must_hold(scope: Tenant) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build(_small("colour", "weight"))
    result = grounding.ask('things whose colour is "bright red"')
    assert result.entities.quoted == ("bright red",)
    assert result.schema_refs[0].column == "colour"


def test_the_budget_of_the_prompt__is_kept_over_several_databases(scope: Tenant, schema: DatabaseSchema) -> None:
    grounding = SchemaGrounding(scope)
    grounding.build_all([schema, *(replace(_small("colour", "name"), name=f"small_{number}") for number in range(8))])
    for budget in (1, 30, 120, 700):
        result = grounding.ask("name of the program", tables=12, max_tokens=budget)
        assert result.tokens <= budget
        count = len(result.tables) - len(result.left_out)
        assert count > 0 or budget < 120
