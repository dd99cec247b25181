"""How well grounding finds what the SQL of questions uses."""

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from kosmos_rag.core.errors import RequestError
from kosmos_rag.text2sql.catalog.joins import Join, JoinPlan
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.linking.result import GroundingResult
from kosmos_rag.text2sql.sql.analyze import ColumnRef
from kosmos_rag.text2sql.sql.gold import GoldQuestion

_TABLES = 10
_COLUMNS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Shares of questions, 0 to 1, unless said otherwise; None where no question is of the kind."""

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
    columns_in_5: float | None
    """In the question's database, of questions whose SQL names columns."""
    columns_in_10: float | None
    joins: float | None
    """In the question's database, of questions whose SQL joins: the hints hold all of its keys."""
    joins_needed: float | None
    """Those hints do that are between the tables that were found to be needed."""
    join_hints: float
    """Mean number of hints, over all questions."""

    def as_json(self) -> dict[str, float]:
        """Return the figures by name, those that there are."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def holds_all(found: Sequence[object], wanted: Iterable[object], within: int) -> bool:
    """Whether all that is wanted is among the first of what was found."""
    return set(wanted) <= set(found[:within])


def r_precision(found: Sequence[object], wanted: Collection[object]) -> float:
    """Return the share of the n wanted that is among the first n found (Manning et al. 2008, section 8.4)."""
    return len(set(wanted) & set(found[: len(wanted)])) / len(wanted)


def keys_of(plans: Iterable[JoinPlan], further: Iterable[Join] = ()) -> set[frozenset[ColumnRef]]:
    """Return the pairs of columns that are equal in any path of join plans, or in further joins."""
    joins = (join for plan in plans for path in plan.paths for join in path.joins)
    return {
        frozenset(((join.table, own), (join.key.table, target)))
        for join in (*joins, *further)
        for own, target in zip(join.key.columns, join.key.target, strict=True)
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """What was found for one question, held against its SQL."""

    gold: GoldQuestion
    database_first: bool
    tables_in_5: bool
    tables_in_10: bool
    prompt_tables: bool
    prompt_tokens: int
    r_precision: float
    columns_in_5: bool
    columns_in_10: bool
    joins: bool
    joins_needed: bool
    join_hints: int


def evaluate(grounding: SchemaGrounding, questions: Sequence[GoldQuestion], *, max_tokens: int = 700) -> Figures:
    """Ask every question over all databases and over its own. Raises RequestError where there is none with tables."""
    return figures([judge(grounding, gold, max_tokens=max_tokens) for gold in questions if gold.tables])


def judge(grounding: SchemaGrounding, gold: GoldQuestion, *, max_tokens: int = 700) -> Judged:
    """Ask one question over all databases and over its own."""
    every = grounding.ask(gold.question, _COLUMNS, tables=_TABLES, max_tokens=max_tokens)
    own = grounding.ask(gold.question, _COLUMNS, database=gold.database, tables=_TABLES)
    over_all, over_own, columns = _tables(every), _tables(own), _columns(own)
    plans, further = (own.selection.plans, own.selection.further) if own.selection else ((), ())
    return Judged(
        gold=gold,
        database_first=every.database == gold.database,
        tables_in_5=holds_all(over_all, _wanted(gold), 5),
        tables_in_10=holds_all(over_all, _wanted(gold), 10),
        prompt_tables=prompt_holds(every, gold),
        prompt_tokens=every.tokens,
        r_precision=r_precision(over_own, _wanted(gold)),
        columns_in_5=holds_all(columns, gold.columns, 5),
        columns_in_10=holds_all(columns, gold.columns, 10),
        joins=holds_joins(plans, gold, further),
        joins_needed=holds_joins(plans, gold),
        join_hints=len(own.join_hints),
    )


def figures(judged: Sequence[Judged]) -> Figures:
    """Sum up questions. Raises RequestError where there is none."""
    if not judged:
        raise RequestError("there is no question whose SQL uses a table; give some")
    with_columns = [found for found in judged if found.gold.columns]
    joining = [found for found in judged if found.gold.joins]
    return Figures(
        questions=len(judged),
        database_first=statistics.fmean(found.database_first for found in judged),
        tables_in_5=statistics.fmean(found.tables_in_5 for found in judged),
        tables_in_10=statistics.fmean(found.tables_in_10 for found in judged),
        prompt_tables=statistics.fmean(found.prompt_tables for found in judged),
        prompt_tokens=statistics.fmean(found.prompt_tokens for found in judged),
        r_precision=statistics.fmean(found.r_precision for found in judged),
        columns_in_5=_share(found.columns_in_5 for found in with_columns),
        columns_in_10=_share(found.columns_in_10 for found in with_columns),
        joins=_share(found.joins for found in joining),
        joins_needed=_share(found.joins_needed for found in joining),
        join_hints=statistics.fmean(found.join_hints for found in judged),
    )


def holds_joins(plans: Iterable[JoinPlan], gold: GoldQuestion, further: Iterable[Join] = ()) -> bool:
    """Whether join plans and further joins hold all keys by which a question's SQL joins."""
    return {frozenset(pair) for pair in gold.joins} <= keys_of(plans, further)


def _share(held: Iterable[bool]) -> float | None:
    """Return the share of True; None of nothing."""
    values = list(held)
    return statistics.fmean(values) if values else None


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
