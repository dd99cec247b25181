"""How well grounding finds what the SQL of questions uses."""

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from kosmos_rag.errors import RequestError
from kosmos_rag.grounding.grounding import SchemaGrounding
from kosmos_rag.grounding.result import GroundingResult
from kosmos_rag.schema.gold import GoldQuestion
from kosmos_rag.schema.joins import JoinPlan
from kosmos_rag.schema.reading import ColumnRef

_TABLES = 10
_COLUMNS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Shares of questions, 0 to 1, unless said otherwise."""

    questions: int
    database_first: float
    """Over all databases, the first table is of the right one."""
    tables_in_5: float
    """Over all databases, all tables of the SQL are among the first five."""
    tables_in_10: float
    prompt_tables: float
    """Over all databases, the prompt holds all tables of the SQL."""
    prompt_tokens: float
    """Mean tokens of those prompts."""
    r_precision: float
    """In the question's database, the mean share of the SQL's n tables among the first n."""
    columns_in_5: float
    """In the question's database, of questions whose SQL names columns."""
    columns_in_10: float
    joins: float
    """In the question's database, of questions whose SQL joins: the hints hold all of its keys."""

    def as_json(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


def holds_all(found: Sequence[object], wanted: Iterable[object], within: int) -> bool:
    """Whether all that is wanted is among the first of what was found."""
    return set(wanted) <= set(found[:within])


def r_precision(found: Sequence[object], wanted: Collection[object]) -> float:
    """Return the share of the n wanted that is among the first n found (Manning et al. 2008, section 8.4)."""
    return len(set(wanted) & set(found[: len(wanted)])) / len(wanted)


def keys_of(plans: Iterable[JoinPlan]) -> set[frozenset[ColumnRef]]:
    """Return the pairs of columns that are equal in any path of join plans."""
    return {
        frozenset(((join.table, own), (join.key.table, target)))
        for plan in plans
        for path in plan.paths
        for join in path.joins
        for own, target in zip(join.key.columns, join.key.target, strict=True)
    }


def evaluate(grounding: SchemaGrounding, questions: Sequence[GoldQuestion], *, max_tokens: int = 700) -> Figures:
    """Ask every question over all databases and over its own. Raises RequestError where there is none with tables."""
    asked = [question for question in questions if question.tables]
    if not asked:
        raise RequestError("there is no question whose SQL uses a table; give some")
    every = [grounding.ask(gold.question, _COLUMNS, tables=_TABLES, max_tokens=max_tokens) for gold in asked]
    own = [grounding.ask(gold.question, _COLUMNS, database=gold.database, tables=_TABLES) for gold in asked]
    with_columns = [(gold, result) for gold, result in zip(asked, own, strict=True) if gold.columns]
    joining = [(gold, result) for gold, result in zip(asked, own, strict=True) if gold.joins]
    over_all = list(zip(asked, every, strict=True))
    return Figures(
        questions=len(asked),
        database_first=_share(result.database == gold.database for gold, result in over_all),
        tables_in_5=_share(holds_all(_tables(result), _wanted(gold), 5) for gold, result in over_all),
        tables_in_10=_share(holds_all(_tables(result), _wanted(gold), 10) for gold, result in over_all),
        prompt_tables=_share(prompt_holds(result, gold) for gold, result in over_all),
        prompt_tokens=statistics.fmean(result.tokens for result in every),
        r_precision=statistics.fmean(
            r_precision(_tables(result), _wanted(gold)) for gold, result in zip(asked, own, strict=True)
        ),
        columns_in_5=_share(holds_all(_columns(result), gold.columns, 5) for gold, result in with_columns),
        columns_in_10=_share(holds_all(_columns(result), gold.columns, 10) for gold, result in with_columns),
        joins=_share(
            {frozenset(pair) for pair in gold.joins} <= keys_of(result.selection.plans if result.selection else ())
            for gold, result in joining
        ),
    )


def _share(held: Iterable[bool]) -> float:
    """Return the share of True; 0 of nothing."""
    values = list(held)
    return sum(values) / len(values) if values else 0.0


def _wanted(gold: GoldQuestion) -> set[tuple[str, str]]:
    return {(gold.database, table) for table in gold.tables}


def _tables(result: GroundingResult) -> list[tuple[str, str]]:
    return [(table.database, table.table) for table in result.tables]


def _columns(result: GroundingResult) -> list[ColumnRef]:
    return [(ref.table, ref.column) for ref in result.schema_refs]


def prompt_holds(result: GroundingResult, gold: GoldQuestion) -> bool:
    """Whether the prompt holds all tables of a question's SQL."""
    return _wanted(gold) <= _in_prompt(result)


def _in_prompt(result: GroundingResult) -> set[tuple[str, str]]:
    """Return the tables that the prompt holds."""
    if result.selection is None:
        return set()
    own = {(result.selection.schema.name, table) for table in result.selection.tables}
    return (own | set(_tables(result))) - set(result.left_out)
