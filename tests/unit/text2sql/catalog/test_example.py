"""The example's questions ask for what its schema has."""

import yaml

from kosmos_rag.text2sql.catalog.joins import JoinGraph
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.recipes import read_recipes
from tests.unit.text2sql.catalog.worlds import EXAMPLE


def test_questions__name_columns_keys_and_recipes_that_are_there(example: DatabaseSchema) -> None:
    questions = yaml.safe_load((EXAMPLE / "questions.yaml").read_text())["questions"]
    assert len(questions) == 7
    models = {table.model: table for table in example.tables}
    slugs = {recipe.slug for recipe in read_recipes(EXAMPLE / "recipes.yaml", example)}
    graph = JoinGraph(example)
    for question in questions:
        tables = []
        for reference in question["columns"]:
            model, _, column = reference.partition(".")
            assert models[model].column(column), reference
            tables.append(models[model].full_name)
        for hint in question.get("joins", ()):
            (plan,) = graph.plans([*tables, "programs"])
            assert hint in [join.hint for path in plan.paths for join in path.joins]
        assert {question["recipe"]} <= slugs if "recipe" in question else True
