"""Score signals over documents of a database schema.

Such documents describe models, columns and query recipes.

These rules read only the metadata of the documents. Presets name them like any other signal.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.engine.signals import Number, QueryContext, ScoreSignal, SelectionSignal, word_prefixes
from kosmos_rag.text2sql.records import ColumnRef, split_column

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_COLUMN, _RECIPE = "schema_column", "query_recipe"
"""Values of the metadata key `kind`."""


def _kind(passage: Passage) -> str:
    """Return the kind of a schema document; empty for other documents."""
    return str(passage.metadata.get("kind", ""))


@lru_cache(maxsize=20_000)
def _name_words(name: str) -> frozenset[str]:
    """Split an identifier into words, without stop words."""
    return word_prefixes(_CAMEL.sub(" ", name))


def _mentions_name(query: QueryContext, passage: Passage, key: str) -> bool:
    """Return whether the query contains every word of a name.

    The name is a value of the metadata.
    """
    name = _name_words(str(passage.metadata.get(key, "")))
    return bool(name) and name <= query.words


def _recipe_columns(passage: Passage) -> list[ColumnRef]:
    """Return the columns of a recipe."""
    get = passage.metadata.get
    return [split_column(str(name), get("tables", ())) for name in get("columns", ())]


def _target_column(passage: Passage) -> tuple[str, str]:
    """Return table and column that a document is about.

    The names are empty if there is none. A recipe is about the first of its columns, the one that it returns.
    """
    if _kind(passage) == _RECIPE:
        return next(iter(_recipe_columns(passage)), ("", ""))
    return str(passage.metadata.get("table", "")), str(passage.metadata.get("column", ""))


def _mentions_any(query: QueryContext, passage: Passage) -> bool:
    """Return whether the query contains a word of names or keywords."""
    get = passage.metadata.get
    names = (get("table", ""), get("model", ""), get("column", ""), *get("keywords", ()))
    return not _split_names(tuple(map(str, names))).isdisjoint(query.words)


@lru_cache(maxsize=20_000)
def _split_names(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset[str]().union(*map(_name_words, names))


def _cosine(passage: Passage) -> float:
    """Return the cosine to the query.

    The result is 0 if only the lexical retriever found the passage.
    """
    return passage.dense_score or 0.0


_ROW_NAME = re.compile(r"(?:^|_)(?:name|title|label)$", re.IGNORECASE)
_TIME_COLUMN = re.compile(r"date|time(?!zone)|(?:^|_)(?:at|on|year)$", re.IGNORECASE)
_NUMBER_TYPE = re.compile(r"int|num|dec|float|double|real|money", re.IGNORECASE)
_NAMED_ENTITY = re.compile(r"\"[^\"]+\"|'[^']{2,}'|(?<!^)(?<![.?!] )\b[A-Z][a-z]+")
_TIME_WORD = re.compile(
    r"\b(?:when|today|yesterday|since|before|after|last|latest|recent|(?:19|20)\d\d|week|month|year)\b", re.IGNORECASE
)
_NUMBER_WORD = re.compile(r"(?<![\w-])\d+(?:\.\d+)?(?![\w-])|\b(?:more|less|fewer|above|below|at least|at most)\b")
_EVENT_WORDS = ("created", "updated", "executed", "started", "finished", "completed")


_TOTALS = re.compile(r"\b(?:how many|number of|count|total|sum|average|mean)\b", re.IGNORECASE)
_TOKEN = re.compile(r"[^\W_]+|[.?!,;:]")
_ROW_WORDS = 2
"""Words next to a table's noun that name a row; a single one is too often part of a column's name."""
_NO_NAMES = word_prefixes(
    "average total count number sum mean duration time size status state date latest last statistics run runs variant"
)


def _names_row(query: QueryContext, passage: Passage, table: str) -> bool:
    """Return whether the query names a row of a table.

    By quotes, capital letters, a known value, or two words next to the table's noun: `the forest fire program`.
    """
    text = query.text.lower()
    if _NAMED_ENTITY.search(query.text) or any(
        re.search(rf"(?<!\w){re.escape(str(value).lower())}(?!\w)", text)
        for value in passage.metadata.get("values", ())
    ):
        return True
    noun = re.split(r"[._]", table.lower())[-1].removesuffix("s")
    tokens = _TOKEN.findall(text)
    positions = [at for at, token in enumerate(tokens) if noun and token == noun]
    return any(
        _is_name(tokens[at + 1 : at + 1 + _ROW_WORDS]) or _is_name(tokens[max(at - _ROW_WORDS, 0) : at])
        for at in positions
    )


def _is_name(tokens: Sequence[str]) -> bool:
    return len(tokens) == _ROW_WORDS and all(word_prefixes(token) - _NO_NAMES for token in tokens)


class SchemaEntities(ScoreSignal):
    """Score columns and recipes for the entities of the query.

    Entities are names, times and numbers.
    """

    weight: Number = 1.0
    names: Number = Field(default=3.0, description="For the name of a row, where the question names one.")
    temporal: Number = Field(default=2.0, description="For times, where it asks for or names one.")
    moment: Number = Field(default=2.0, description="On top, where it says the event: created, updated, executed.")
    numeric: Number = Field(
        default=1.0, description="For numbers, where it compares; for recipes of numbers, where it asks for a total."
    )

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return the sum of bonuses.

        The result is 0 for other documents and for those that the query does not mention.
        """
        if _kind(passage) not in (_COLUMN, _RECIPE) or not _mentions_any(query, passage):
            return 0.0
        return self._score_recipe(query, passage) if _kind(passage) == _RECIPE else self._score_column(query, passage)

    def _score_recipe(self, query: QueryContext, passage: Passage) -> float:
        """Score filters by the name of a row, and totals."""
        has_row_name = any(
            _ROW_NAME.search(column) and _names_row(query, passage, table)
            for table, column in _recipe_columns(passage)[1:]
        )
        is_total = passage.metadata.get("pattern") == "aggregation" and _TOTALS.search(query.text)
        return (self.names if has_row_name else 0.0) + (self.numeric if is_total else 0.0)

    def _score_column(self, query: QueryContext, passage: Passage) -> float:
        table, column = _target_column(passage)
        type_ = str(passage.metadata.get("type", ""))
        total = self.names if _ROW_NAME.search(column) and _names_row(query, passage, table) else 0.0
        if _TIME_COLUMN.search(type_) or _TIME_COLUMN.search(column):
            events = [event for event in _EVENT_WORDS if event in column.lower() and event in query.text.lower()]
            total += self.temporal if events or _TIME_WORD.search(query.text) else 0.0
            total += self.moment if events else 0.0
        elif _NUMBER_TYPE.search(type_) and not passage.metadata.get("key") and _NUMBER_WORD.search(query.text):
            total += self.numeric
        return total


class SchemaExact(ScoreSignal):
    """Score columns named in full, with a word of their model.

    Recipes for such columns too.
    """

    weight: Number = 6.0

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return 1 or 0.

        Words that the column name shares with its model do not count twice.
        """
        table, column = _target_column(passage)
        column_words = _name_words(column)
        if _kind(passage) not in (_COLUMN, _RECIPE) or not column_words or not column_words <= query.words:
            return 0.0
        owner = str(passage.metadata.get("model", table))
        return float(bool((_name_words(owner) - column_words) & query.words))


class SchemaLexical(ScoreSignal):
    """Score column, model and table names that the query contains.

    A recipe has the column that it returns.
    """

    weight: Number = 1.0
    column: Number = Field(default=3.0, description="For the name of the column.")
    model: Number = Field(default=2.0, description="For the name of the class.")
    table: Number = Field(default=1.5, description="For the name of the table.")

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return the sum of bonuses; 0 for documents outside a schema."""
        bonuses = {"model": self.model, "table": self.table}
        total = sum(value for key, value in bonuses.items() if _mentions_name(query, passage, key))
        column = _name_words(_target_column(passage)[1]) if _kind(passage) in (_COLUMN, _RECIPE) else frozenset()
        return total + (self.column if column and column <= query.words else 0.0)


class SchemaPenalty(ScoreSignal):
    """Penalise schema documents that match neither words nor meaning of the query."""

    weight: Number = 1.0
    nothing: Number = Field(default=-3.0, description="For a document of whose names the question says no word.")
    elsewhere: Number = Field(default=-2.0, description="For a column of a table of whose name it says no word.")
    low: Number = Field(default=0.3, description="Cosine below which a document means something else.")

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return the penalty.

        The result is 0 outside a schema and at a cosine of at least `low`.
        """
        if not _kind(passage) or _cosine(passage) >= self.low:
            return 0.0
        if not _mentions_any(query, passage):
            return self.nothing
        table = _name_words(str(passage.metadata.get("table", "")))
        return self.elsewhere if table and not table & query.words else 0.0


_RECIPE_SHAPES = {
    "aggregation": r"\b(?:how many|how often|number of|count|total|sum|average|mean|max\w*|min\w*|most|least)\b",
    "temporal": r"\b(?:when|latest|last|recent|newest|since|before|after|today|yesterday|created|updated|executed)\b",
    "status": r"\b(?:status|state|pending|running|failed|succeeded|cancelled|active|enabled)\b",
    "relationship": r"\b(?:of a|for a|belong\w*|related|variants?|which \w+ (?:has|have|does|do)|join\w*)\b",
}
_RECIPE_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _RECIPE_SHAPES.items()}


class SchemaRecipe(ScoreSignal):
    """Score query recipes: curated ones, and those of the query's pattern."""

    weight: Number = 1.0
    curated: Number = Field(default=4.0, description="For a recipe written by hand.")
    pattern: Number = Field(default=2.0, description="Where question and recipe are of one shape.")

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return the sum of bonuses.

        The result is 0 for other documents and recipes that share no word.
        """
        if _kind(passage) != _RECIPE or not _mentions_any(query, passage):
            return 0.0
        pattern = _RECIPE_PATTERNS.get(str(passage.metadata.get("pattern")))
        fits = pattern is not None and pattern.search(query.text) is not None
        return (self.curated if passage.metadata.get("curated") else 0.0) + (self.pattern if fits else 0.0)


_STATUS_NAME = re.compile(r"(?:^|_)(?:status|state|phase|stage|outcome|lifecycle)$", re.IGNORECASE)
_STATUS_WORDS = word_prefixes("status state phase stage outcome lifecycle")


class SchemaStatus(ScoreSignal):
    """Score status columns if the query mentions a status."""

    weight: Number = 1.0
    base: Number = Field(default=4.0, description="Where the question says status, state, or one of the values.")
    values: Number = Field(default=2.0, description="At most, for values: half of it for each.")

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return the bonus.

        The result is 0 for other columns and for queries without a status.
        """
        if _kind(passage) != _COLUMN or not _STATUS_NAME.search(str(passage.metadata.get("column", ""))):
            return 0.0
        value_words = {word for value in passage.metadata.get("values", ()) for word in word_prefixes(str(value))}
        mentions = len(value_words & query.words)
        if not mentions and not _STATUS_WORDS & query.words:
            return 0.0
        return self.base + min(self.values, mentions * self.values / 2)


class SchemaTargets(SelectionSignal):
    """Add the score of a column's best recipe to the column.

    A column and the recipes that return it are documents of one target. Their points add up, as if they were one.
    """

    def select(self, query: QueryContext, passages: Sequence[Passage]) -> list[Passage]:  # noqa: ARG002
        """Return all passages, columns with their recipe's score, best first."""
        best: dict[tuple[str, str, str], float] = {}
        for passage in passages:
            if _kind(passage) == _RECIPE:
                target = (str(passage.metadata.get("database", "")), *_target_column(passage))
                best[target] = max(best.get(target, 0.0), passage.score)
        scored = [
            replace(passage, score=passage.score + best.get(_column_target(passage), 0.0)) for passage in passages
        ]
        ranking = sorted(scored, key=lambda passage: -passage.score)
        return [replace(passage, rank=rank) for rank, passage in enumerate(ranking, start=1)]


def _column_target(passage: Passage) -> tuple[str, str, str]:
    if _kind(passage) != _COLUMN:
        return "", "", ""
    return str(passage.metadata.get("database", "")), *_target_column(passage)


SCHEMA_RULES: Mapping[str, type[ScoreSignal | SelectionSignal]] = {
    "schema_entities": SchemaEntities,
    "schema_exact": SchemaExact,
    "schema_lexical": SchemaLexical,
    "schema_penalty": SchemaPenalty,
    "schema_recipe": SchemaRecipe,
    "schema_status": SchemaStatus,
    "schema_targets": SchemaTargets,
}
