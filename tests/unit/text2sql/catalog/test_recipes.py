"""Recipes from keys, and recipes that were written by hand."""

from pathlib import Path

import pytest

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.errors import SchemaInvalid
from kosmos_rag.text2sql.recipes import MAX_MEASURES_PER_KEY, read_recipes, slugify, template_recipes
from kosmos_rag.text2sql.sql.validate import check_query
from tests.unit.text2sql.catalog.worlds import EXAMPLE, database, table


def test_templates__make_the_recipe_of_the_seed(example: DatabaseSchema) -> None:
    recipes = {recipe.title: recipe for recipe in template_recipes(example)}
    recipe = recipes["success count for program name"]
    assert recipe.text == (
        "Join programs to program_statistics on programs.id = program_statistics.program_id. "
        "Filter by programs.name. Return program_statistics.success_count."
    )
    assert recipe.join_hints == ("program_statistics.program_id -> programs.id",)
    assert recipe.note is not None
    assert recipe.note.startswith("If multiple rows exist due to variants (variant_id)")
    assert not recipe.curated
    assert recipes["average execution time for program name"].pattern == "aggregation"
    assert "program runs by status, program runs in a status" in recipes


def test_templates__have_slugs_that_stay(example: DatabaseSchema) -> None:
    recipes = template_recipes(example)
    assert len({recipe.slug for recipe in recipes}) == len(recipes)
    assert recipes == template_recipes(example)
    patterns = {recipe.pattern for recipe in recipes}
    assert patterns == {"aggregation", "temporal", "status", "relationship"}


def test_templates__of_a_wide_table_are_bounded() -> None:
    wide = table("wide", "p_id integer", *(f"m{n} integer" for n in range(2000)), keys={"p_id": "p.id"})
    assert len(template_recipes(database(table("p", "name"), wide))) == MAX_MEASURES_PER_KEY + 1


def test_slugs__are_apart_where_letters_are_lost() -> None:
    assert slugify("shop", "a_b", "of", "c") == "shop-a_b-of-c"
    slugs = {slugify(text) for text in ("a b", "A b", "a 🙂b", 'a "b"', "🙂", "🙃")}
    assert len(slugs) == 6
    assert all(slug.replace("-", "").replace("_", "").isalnum() for slug in slugs)


def test_curated__fit_the_example_and_their_sql_passes_the_guard(example: DatabaseSchema) -> None:
    recipes = read_recipes(EXAMPLE / "recipes.yaml", example)
    assert len(recipes) == 7
    for recipe in recipes:
        assert recipe.curated
        assert recipe.sql is not None
        reading = check_query(
            recipe.sql, example, parameters={"name": "forest fire"} if ":name" in recipe.sql else {}
        ).analysis
        assert set(reading.tables) == set(recipe.tables)
        assert set(recipe.columns) <= set(reading.columns)


def test_curated__faults_are_named_at_once(example: DatabaseSchema, tmp_path: Path) -> None:
    file = tmp_path / "recipes.yaml"
    file.write_text(
        """
recipes:
  - {slug: Bad Slug, title: t, text: x, pattern: status, tables: [programs]}
  - {slug: a, title: t, text: x, pattern: sideways, tables: [programs]}
  - {slug: b, title: t, text: x, pattern: status, tables: [nope], columns: [programs.nope], join_hints: [a -> b]}
  - {slug: c, title: t, text: x, pattern: status, tables: [programs], colour: red}
  - {slug: d, title: t, text: x, pattern: status, tables: [programs]}
  - {slug: d, title: t, text: x, pattern: status, tables: [programs]}
  - 7
"""
    )
    with pytest.raises(SchemaInvalid) as caught:
        read_recipes(file, example)
    places = [problem.partition(":")[0] for problem in caught.value.problems]
    assert places == [
        "$.recipes[0].slug",
        "$.recipes[1].pattern",
        "$.recipes[2].tables",
        "$.recipes[2].columns",
        "$.recipes[2].join_hints",
        "$.recipes[3].colour",
        "$.recipes[5].slug",
        "$.recipes[6]",
    ]


def test_curated__that_are_no_yaml_are_refused(example: DatabaseSchema, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("recipes: [")
    (tmp_path / "other.yaml").write_text("[1]")
    with pytest.raises(ConfigError):
        read_recipes(tmp_path / "broken.yaml", example)
    with pytest.raises(SchemaInvalid, match="must be a list"):
        read_recipes(tmp_path / "other.yaml", example)
