"""From what was linked to what an agent is given: references, joins, recipes, what is open, and the prompt."""

from collections.abc import Callable, Mapping, Sequence

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Passage
from kosmos_rag.text2sql.ambiguity import find_ambiguities
from kosmos_rag.text2sql.catalog.joins import Join, JoinGraph, JoinPlan
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.linking.catalog import recipe_of
from kosmos_rag.text2sql.linking.linking import Linked, Linker
from kosmos_rag.text2sql.linking.result import SchemaRef
from kosmos_rag.text2sql.prompt import Selection, prompt_block
from kosmos_rag.text2sql.recipes import Recipe

_MOST_RECIPES = 3


def references(database: str, schema: DatabaseSchema, linked: Linked, k: int) -> tuple[SchemaRef, ...]:
    """Return the k best columns."""
    return tuple(
        SchemaRef(
            database=database,
            table=column.table,
            model=_model(schema, column.table),
            column=column.column,
            score=column.score,
            parts=column.parts,
        )
        for column in linked.columns[:k]
    )


def _model(schema: DatabaseSchema, full_name: str) -> str:
    table = schema.table(full_name)
    assert table is not None, "columns are linked within their schema"
    return table.model or table.name


def select(
    schema: DatabaseSchema, linker: Linker, linked: Linked, refs: Sequence[SchemaRef], docs: Sequence[Passage]
) -> Selection:
    """Return what a prompt about the likeliest database is made of: the tables needed first, then others found."""
    found = [table.table for table in linked.tables if table.database == schema.name]
    graph = linker.graph(schema.name)
    plans = graph.plans(linked.chosen)
    bridges = [bridge for plan in plans for bridge in plan.paths[0].bridges]
    tables = tuple(dict.fromkeys([*linked.chosen, *bridges, *found]))
    columns = tuple((ref.table, ref.column) for ref in refs if ref.table in tables)
    return Selection(
        schema=schema,
        tables=tables,
        columns=columns,
        plans=plans,
        further=_further(graph, linked.chosen, found, plans),
        ambiguities=find_ambiguities(schema, tables, columns, plans),
        recipes=_recipes(schema.name, tables, docs),
    )


def _further(
    graph: JoinGraph, needed: Sequence[str], found: Sequence[str], plans: Sequence[JoinPlan]
) -> tuple[Join, ...]:
    """Return the joins to the best table that is not needed: which ones a question needs is often not sure."""
    following = next((table for table in found if table not in needed), None)
    if following is None:
        return ()
    known = {join for plan in plans for path in plan.paths for join in path.joins}
    wider = graph.plans([*needed, following])
    return tuple(join for plan in wider for join in plan.paths[0].joins if join not in known)


def _recipes(database: str, tables: Sequence[str], docs: Sequence[Passage]) -> tuple[Recipe, ...]:
    """Return the best recipes that are over these tables alone."""
    fitting = (
        recipe_of(doc)
        for doc in docs
        if doc.metadata.get("kind") == "query_recipe"
        and doc.metadata["database"] == database
        and set(doc.metadata["tables"]) <= set(tables)
    )
    return tuple(recipe for recipe, _ in zip(fitting, range(_MOST_RECIPES), strict=False))


def join_hints(selection: Selection) -> tuple[str, ...]:
    """Return the joins of all paths, each once, and then the further ones."""
    joins = (join for plan in selection.plans for path in plan.paths for join in path.joins)
    return tuple(dict.fromkeys(join.hint for join in (*joins, *selection.further)))


def prompt_of(
    selection: Selection,
    linked: Linked,
    schemas: Mapping[str, DatabaseSchema],
    *,
    max_tokens: int,
    count: Callable[[str], int],
) -> tuple[str, int, tuple[tuple[str, str], ...]]:
    """Write the prompt: the likeliest database, then tables of others that were found, each under its name.

    Returns the text, its tokens, and database and name of the tables that found no room.
    """
    others: dict[str, list[str]] = {}
    for table in linked.tables:
        if table.database != selection.schema.name:
            others.setdefault(table.database, []).append(table.table)
    # Tables of other databases are short, and come before what is nice to know of the likeliest one, not before its
    # tables.
    blocks = [_block(schemas[name], tables, max_tokens, count) for name, tables in others.items()]
    while True:
        rest = "\n\n".join(text for text, _ in blocks if text)
        room = max_tokens - (count(rest) if rest else 0)
        first = prompt_block(selection, max_tokens=max(room, 1), count=count)
        fits = bool(first.text) and count(f"{first.text}\n\n{rest}") <= max_tokens and not first.left_out
        if fits or not blocks:
            break
        blocks.pop()
    written = {name: missing for name, (_, missing) in zip(others, blocks, strict=False)}
    left_out = [(name, table) for name, tables in others.items() for table in written.get(name, tables)]
    own = [(selection.schema.name, table) for table in first.left_out]
    text = "\n\n".join(part for part in (first.text, rest) if part)
    return text, count(text) if text else 0, (*own, *left_out)


def _block(
    schema: DatabaseSchema, tables: Sequence[str], max_tokens: int, count: Callable[[str], int]
) -> tuple[str, tuple[str, ...]]:
    heading = f"-- Database {schema.name}, if it is meant:"
    selection = Selection(schema=schema, tables=tuple(tables), columns=())
    # A little for each: the likeliest database is what the question is about.
    block = prompt_block(selection, max_tokens=max(max_tokens // 8, 1), count=count)
    return (f"{heading}\n{block.text}" if block.text else ""), block.left_out


def known(schemas: Mapping[str, DatabaseSchema], database: str) -> DatabaseSchema:
    """Return a schema by name. Raises RequestError where there is none that the reader may read."""
    if database not in schemas:
        raise RequestError(f"there is no database {database!r}; known are {', '.join(sorted(schemas)[:10]) or 'none'}")
    return schemas[database]
