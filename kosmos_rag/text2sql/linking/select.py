"""Select columns, joins, recipes and ambiguities of a schema for the prompt."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import combinations, islice

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Passage
from kosmos_rag.text2sql.ambiguity import find_ambiguities
from kosmos_rag.text2sql.catalog.joins import Join, JoinGraph, JoinPath, JoinPlan
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, ForeignKey
from kosmos_rag.text2sql.filters import find_filters
from kosmos_rag.text2sql.linking.catalog import parse_recipe
from kosmos_rag.text2sql.linking.exclusions import Exclusion
from kosmos_rag.text2sql.linking.linking import Linked, Linker
from kosmos_rag.text2sql.prompt import Selection, prompt_block
from kosmos_rag.text2sql.query_examples import parse_examples
from kosmos_rag.text2sql.recipes import settle_variants
from kosmos_rag.text2sql.records import Ambiguity, ColumnRef, Entities, Recipe, SchemaRef
from kosmos_rag.text2sql.settings import VariantChoice

_MAX_RECIPES = 3
_MAX_EXAMPLES = 3
_MIN_COLUMNS = 5
"""Columns that come before the keys of the next table."""


def column_references(schema: DatabaseSchema, linked: Linked, k: int) -> tuple[SchemaRef, ...]:
    """Return references to the columns that the question supports, at most k.

    Args:
        k: Maximum number of columns.
    """
    return tuple(
        SchemaRef(
            database=schema.name,
            table=column.table,
            model=_model(schema, column.table),
            column=column.column,
            score=column.score,
            parts=column.parts,
        )
        for column in linked.columns[: min(k, linked.supported)]
    )


def _model(schema: DatabaseSchema, full_name: str) -> str:
    table = schema.table(full_name)
    assert table is not None, "columns are linked within their schema"
    return table.model or table.name


def select_parts(
    schema: DatabaseSchema,
    linker: Linker,
    linked: Linked,
    refs: Sequence[SchemaRef],
    *,
    question: str,
    entities: Entities,
    docs: Sequence[Passage] = (),
    exclusions: Sequence[Exclusion] = (),
    variants: VariantChoice = "open",
) -> Selection:
    """Select what a prompt about the likeliest database contains.

    Selected tables come first, then other ranked tables.

    Args:
        schema: The schema of the likeliest database.
        linker: The linker, for its join graph.
        refs: References to the best columns.
        question: The question, for filters.
        entities: Values, names, numbers and times of it, for filters.
        docs: Retrieved documents, for recipes and examples.
        exclusions: What columns do not answer of this question.
        variants: The decision on rows per variant.
    """
    ranking = [table.table for table in linked.tables if table.database == schema.name]
    graph = linker.graph(schema.name)
    plans = graph.plans(linked.chosen)
    bridges = [bridge for plan in plans for bridge in plan.paths[0].bridges]
    tables = tuple(dict.fromkeys([*linked.chosen, *bridges, *ranking]))
    references = tuple((ref.table, ref.column) for ref in refs if ref.table in tables)
    further = _further_joins(graph, linked.chosen, ranking, plans)
    return Selection(
        schema=schema,
        tables=tables,
        references=references,
        columns=tuple(column for column in rank_columns(linked, plans, further) if column[0] in tables),
        plans=plans,
        further=further,
        filters=find_filters(
            schema,
            [(column.table, column.column) for column in linked.columns if column.table in tables],
            entities,
            question=question,
        ),
        ambiguities=(
            *(item.note for item in exclusions),
            *(_settle(note, variants) for note in find_ambiguities(schema, tables, references, plans)),
        ),
        recipes=tuple(
            recipe if recipe.note is None else replace(recipe, note=settle_variants(recipe.note, variants))
            for recipe in _recipes(schema.name, tables, docs, without={item.slug for item in exclusions})
        ),
        examples=tuple(parse_examples(docs, schema)[:_MAX_EXAMPLES]),
    )


def _settle(ambiguity: Ambiguity, variants: VariantChoice) -> Ambiguity:
    text = settle_variants(ambiguity.text, variants)
    return replace(ambiguity, text=text, settled=text != ambiguity.text)


def rank_columns(linked: Linked, plans: Iterable[JoinPlan], further: Iterable[Join]) -> list[ColumnRef]:
    """Rank the columns that the SQL probably needs, keys of joins included.

    The columns with the most new evidence come first. The keys between the needed tables come before weaker
    columns, those to the next table after them. Returns as many as the linked columns, at least one.

    Args:
        plans: Joins between the needed tables; the first path of each counts.
        further: Joins to the next table.
    """
    ranking = [(column.table, column.column) for column in linked.columns]
    supported = linked.columns[: linked.supported]
    most = max((column.new_evidence for column in supported), default=0.0)
    strongest = [(column.table, column.column) for column in supported if column.new_evidence == most]
    keys = _key_columns(join for plan in plans for join in plan.paths[0].joins)
    weaker = ranking[: max(linked.supported, _MIN_COLUMNS)]
    merged = dict.fromkeys((*strongest, *keys, *weaker, *_key_columns(further), *ranking))
    return list(merged)[: len(ranking)]


def _key_columns(joins: Iterable[Join]) -> Iterator[ColumnRef]:
    for join in joins:
        yield from ((join.table, column) for column in join.key.columns)
        yield from ((join.key.table, column) for column in join.key.target)


def _further_joins(
    graph: JoinGraph, needed: Sequence[str], ranking: Sequence[str], plans: Sequence[JoinPlan]
) -> tuple[Join, ...]:
    """Return the joins past tables between, then those to the next table.

    The selection of tables is often uncertain.
    """
    planned = {join for plan in plans for path in plan.paths for join in path.joins}
    direct = [join for plan in plans for join in _direct_joins(plan.paths[0])]
    next_table = next((table for table in ranking if table not in needed), None)
    wider = graph.plans([*needed, next_table]) if next_table is not None else ()
    more = (join for plan in wider for join in plan.paths[0].joins if join not in planned)
    return tuple(dict.fromkeys((*direct, *more)))


def _direct_joins(path: JoinPath) -> Iterator[Join]:
    """Yield the joins between two tables that refer to the same columns.

    The query may need no row of that table: awards and salaries of players join over the player.
    """
    for first, second in combinations(path.joins, 2):
        same = first.key.table == second.key.table and first.key.target == second.key.target
        if same and first.key.table in path.bridges:
            key = ForeignKey(
                columns=first.key.columns,
                table=second.table,
                target=second.key.columns,
                guessed=first.key.guessed or second.key.guessed,
            )
            yield Join(table=first.table, key=key)


def _recipes(database: str, tables: Sequence[str], docs: Sequence[Passage], without: Set[str]) -> tuple[Recipe, ...]:
    """Return the best recipes over these tables only."""
    fitting = (
        parse_recipe(doc)
        for doc in docs
        if doc.metadata.get("kind") == "query_recipe"
        and doc.metadata["database"] == database
        and set(doc.metadata["tables"]) <= set(tables)
        and doc.metadata["slug"] not in without
    )
    return tuple(islice(fitting, _MAX_RECIPES))


def build_prompt(
    selection: Selection,
    linked: Linked,
    schemas: Mapping[str, DatabaseSchema],
    *,
    max_tokens: int,
    count: Callable[[str], int],
) -> tuple[str, int, tuple[tuple[str, str], ...]]:
    """Write the prompt within a token budget.

    The likeliest database comes first, then tables of others, each under its name. Returns the text, its tokens, and
    database and name of the tables that did not fit.

    Args:
        selection: Parts of the likeliest database.
        count: Counts the tokens of a text.
    """
    tables_by_database: dict[str, list[str]] = {}
    for table in linked.tables:
        if table.database != selection.schema.name:
            tables_by_database.setdefault(table.database, []).append(table.table)
    # Tables of other databases are short. They come before the optional parts of the likeliest one, after its tables.
    blocks = [_block(schemas[name], tables, max_tokens, count) for name, tables in tables_by_database.items()]
    while True:
        other_blocks = "\n\n".join(text for text, _ in blocks if text)
        budget = max_tokens - (count(other_blocks) if other_blocks else 0)
        own_block = prompt_block(selection, max_tokens=max(budget, 1), count=count)
        fits = (
            bool(own_block.text)
            and count(f"{own_block.text}\n\n{other_blocks}") <= max_tokens
            and not own_block.left_out
        )
        if fits or not blocks:
            break
        blocks.pop()
    left_out_by_database = {name: left_out for name, (_, left_out) in zip(tables_by_database, blocks, strict=False)}
    other_left_out = [
        (name, table) for name, tables in tables_by_database.items() for table in left_out_by_database.get(name, tables)
    ]
    own_left_out = [(selection.schema.name, table) for table in own_block.left_out]
    text = "\n\n".join(part for part in (own_block.text, other_blocks) if part)
    return text, count(text) if text else 0, (*own_left_out, *other_left_out)


def _block(
    schema: DatabaseSchema, tables: Sequence[str], max_tokens: int, count: Callable[[str], int]
) -> tuple[str, tuple[str, ...]]:
    heading = f"-- Database {schema.name}, if it is meant:"
    selection = Selection(schema=schema, tables=tuple(tables), references=())
    # A little for each: the likeliest database is what the question is about.
    block = prompt_block(selection, max_tokens=max(max_tokens // 8, 1), count=count)
    return (f"{heading}\n{block.text}" if block.text else ""), block.left_out


def get_schema(schemas: Mapping[str, DatabaseSchema], database: str) -> DatabaseSchema:
    """Return a schema by name.

    Raises:
        RequestError: There is no such database that the reader may read.
    """
    if database not in schemas:
        raise RequestError(f"there is no database {database!r}; known are {', '.join(sorted(schemas)[:10]) or 'none'}")
    return schemas[database]
