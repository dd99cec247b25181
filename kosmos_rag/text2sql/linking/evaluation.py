"""Evaluate grounding against the SQL of questions."""

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from kosmos_rag.core.errors import RequestError
from kosmos_rag.text2sql.catalog.joins import Join, JoinPlan
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.linking.result import GroundingResult
from kosmos_rag.text2sql.records import ColumnRef
from kosmos_rag.text2sql.sql.gold import GoldQuestion

_TABLES = 10
_COLUMNS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class GroundingMetrics:
    """Metrics of schema grounding, shares of questions from 0 to 1.

    None if no question is of the kind.
    """

    questions: int
    database_first: float
    """Over all databases, the first table is of the right one."""
    tables_in_5: float
    """Over all databases, all tables of the SQL are among the first five."""
    tables_in_10: float
    prompt_tables: float
    """Over all databases, the prompt contains all tables of the SQL."""
    prompt_tokens: float
    """Mean tokens of those prompts."""
    r_precision: float
    """In the question's database, the mean share of the SQL's n tables among the first n."""
    columns_in_5: float | None
    """In the question's database, of questions whose SQL names columns: all of them are among the first five of
    `selection.columns`."""
    columns_in_10: float | None
    asked_first: float | None
    """In the question's database, of questions whose SQL names columns that do not only join: the first reference is
    one of those asked columns."""
    asked_in_5: float | None
    """All asked columns are among the first five references."""
    asked_in_10: float | None
    reference_precision: float | None
    """Mean share of the returned references that the SQL uses."""
    reference_recall: float | None
    """Mean share of the asked columns that are returned as references."""
    references: float
    """Mean number of returned references, over all questions."""
    joins: float | None
    """In the question's database, of questions whose SQL joins: the hints contain all of its keys."""
    joins_needed: float | None
    """Those hints do that are between the tables that were found to be needed."""
    join_hints: float
    """Mean number of hints, over all questions."""

    def as_json(self) -> dict[str, float]:
        """Return the metrics by name, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def contains_all(ranking: Sequence[object], expected: Iterable[object], cutoff: int) -> bool:
    """Return whether all expected items are among the first `cutoff`.

    Args:
        ranking: Items, best first.
        expected: Items of the gold query.
        cutoff: Number of items that count.
    """
    return set(expected) <= set(ranking[:cutoff])


def r_precision(ranking: Sequence[object], expected: Collection[object]) -> float:
    """Return R-precision: the share of n expected items among the first n.

    Source: Manning et al. 2008, section 8.4.
    """
    return len(set(expected) & set(ranking[: len(expected)])) / len(expected)


def overlap(items: Collection[object], others: Collection[object]) -> float:
    """Return the share of items that are among others."""
    return len(set(items) & set(others)) / len(set(items))


def join_column_pairs(plans: Iterable[JoinPlan], further: Iterable[Join] = ()) -> set[frozenset[ColumnRef]]:
    """Return the pairs of columns that join plans and further joins equate."""
    joins = (join for plan in plans for path in plan.paths for join in path.joins)
    return {
        frozenset(((join.table, source), (join.key.table, target)))
        for join in (*joins, *further)
        for source, target in zip(join.key.columns, join.key.target, strict=True)
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionScore:
    """Scores of one question against its SQL."""

    gold: GoldQuestion
    database_first: bool
    tables_in_5: bool
    tables_in_10: bool
    prompt_tables: bool
    prompt_tokens: int
    r_precision: float
    references: tuple[ColumnRef, ...]
    """As returned, best first."""
    columns: tuple[ColumnRef, ...]
    """`selection.columns`: references and keys of joins, most likely first."""
    joins: bool
    joins_needed: bool
    join_hints: int

    def columns_within(self, cutoff: int) -> bool:
        """Return whether the first columns contain all columns of the SQL."""
        return contains_all(self.columns, self.gold.columns, cutoff)


def evaluate(
    grounding: SchemaGrounding, questions: Sequence[GoldQuestion], *, max_tokens: int = 700
) -> GroundingMetrics:
    """Ground every question over all databases and over its own.

    Args:
        questions: Questions with gold SQL; those without tables are skipped.

    Raises:
        RequestError: No question has a table.
    """
    return aggregate([score_question(grounding, gold, max_tokens=max_tokens) for gold in questions if gold.tables])


def score_question(grounding: SchemaGrounding, gold: GoldQuestion, *, max_tokens: int = 700) -> QuestionScore:
    """Ground one question over all databases and over its own.

    Args:
        grounding: The grounding to evaluate.
        gold: The question with its gold SQL.
        max_tokens: Token budget of the prompt.
    """
    all_databases = grounding.ask(gold.question, _COLUMNS, tables=_TABLES, max_tokens=max_tokens)
    own_database = grounding.ask(gold.question, _COLUMNS, database=gold.database, tables=_TABLES)
    ranked_all, ranked_own = _tables(all_databases), _tables(own_database)
    plans, further = (
        (own_database.selection.plans, own_database.selection.further) if own_database.selection else ((), ())
    )
    return QuestionScore(
        gold=gold,
        database_first=all_databases.database == gold.database,
        tables_in_5=contains_all(ranked_all, _gold_tables(gold), 5),
        tables_in_10=contains_all(ranked_all, _gold_tables(gold), 10),
        prompt_tables=prompt_contains_tables(all_databases, gold),
        prompt_tokens=all_databases.tokens,
        r_precision=r_precision(ranked_own, _gold_tables(gold)),
        references=tuple((ref.table, ref.column) for ref in own_database.schema_refs),
        columns=own_database.selection.columns if own_database.selection else (),
        joins=contains_joins(plans, gold, further),
        joins_needed=contains_joins(plans, gold),
        join_hints=len(own_database.join_hints),
    )


def aggregate(scores: Sequence[QuestionScore]) -> GroundingMetrics:
    """Aggregate the scores of questions.

    Raises:
        RequestError: There is no score.
    """
    if not scores:
        raise RequestError("there is no question whose SQL uses a table; give some")
    with_columns = [score for score in scores if score.gold.columns]
    asking = [score for score in scores if score.gold.requested_columns]
    joining = [score for score in scores if score.gold.joins]
    return GroundingMetrics(
        questions=len(scores),
        database_first=statistics.fmean(score.database_first for score in scores),
        tables_in_5=statistics.fmean(score.tables_in_5 for score in scores),
        tables_in_10=statistics.fmean(score.tables_in_10 for score in scores),
        prompt_tables=statistics.fmean(score.prompt_tables for score in scores),
        prompt_tokens=statistics.fmean(score.prompt_tokens for score in scores),
        r_precision=statistics.fmean(score.r_precision for score in scores),
        columns_in_5=_mean_or_none(score.columns_within(5) for score in with_columns),
        columns_in_10=_mean_or_none(score.columns_within(10) for score in with_columns),
        asked_first=_mean_or_none(
            bool(set(score.references[:1]) & set(score.gold.requested_columns)) for score in asking
        ),
        asked_in_5=_mean_or_none(contains_all(score.references, score.gold.requested_columns, 5) for score in asking),
        asked_in_10=_mean_or_none(contains_all(score.references, score.gold.requested_columns, 10) for score in asking),
        reference_precision=_mean_or_none(
            overlap(score.references, score.gold.columns) for score in asking if score.references
        ),
        reference_recall=_mean_or_none(overlap(score.gold.requested_columns, score.references) for score in asking),
        references=statistics.fmean(len(score.references) for score in scores),
        joins=_mean_or_none(score.joins for score in joining),
        joins_needed=_mean_or_none(score.joins_needed for score in joining),
        join_hints=statistics.fmean(score.join_hints for score in scores),
    )


def contains_joins(plans: Iterable[JoinPlan], gold: GoldQuestion, further: Iterable[Join] = ()) -> bool:
    """Return whether the joins include all join keys of the gold SQL.

    Args:
        plans: Join plans of the result.
        further: Joins in addition to the plans.
    """
    return {frozenset(pair) for pair in gold.joins} <= join_column_pairs(plans, further)


def _mean_or_none(shares: Iterable[float]) -> float | None:
    """Return the mean; None without values."""
    values = list(shares)
    return statistics.fmean(values) if values else None


def _gold_tables(gold: GoldQuestion) -> set[tuple[str, str]]:
    return {(gold.database, table) for table in gold.tables}


def _tables(result: GroundingResult) -> list[tuple[str, str]]:
    return [(table.database, table.table) for table in result.tables]


def prompt_contains_tables(result: GroundingResult, gold: GoldQuestion) -> bool:
    """Return whether the prompt contains all tables of the gold SQL."""
    return _gold_tables(gold) <= _prompt_tables(result)


def _prompt_tables(result: GroundingResult) -> set[tuple[str, str]]:
    """Return the tables of the prompt."""
    if result.selection is None:
        return set()
    selected = {(result.selection.schema.name, table) for table in result.selection.tables}
    return (selected | set(_tables(result))) - set(result.left_out)
