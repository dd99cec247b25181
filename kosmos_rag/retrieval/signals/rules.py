"""Score and selection signals over any documents.

`RULES` maps the names in `rag.signals` to their classes.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from kosmos_rag.core.section import Count, Share, Switch
from kosmos_rag.core.types import Passage, find_department
from kosmos_rag.retrieval.signals.base import Number, QueryContext, ScoreSignal, SelectionSignal
from kosmos_rag.retrieval.signals.words import word_prefixes


class _DepartmentSignal(ScoreSignal):
    """Base of signals that depend on the department of a document."""

    key: str = Field(default="department", description="Key of the metadata, and kind of the principal.")
    by_folder: Switch = Field(
        default=False, description="Use the folder of the file if the metadata has no department."
    )

    def department(self, passage: Passage) -> str | None:
        """Return the department of the passage's document; None if unknown."""
        return find_department(passage.metadata, passage.source, key=self.key, by_folder=self.by_folder)


_SQL_BLOCK = re.compile(r"^\s*(?:```|~~~)\s*sql\b|\bselect\b(?=[\s\S]{1,500}?\bfrom\b)", re.IGNORECASE | re.MULTILINE)


class ContainsSql(ScoreSignal):
    """Score passages that contain SQL: a fenced block or `select … from`."""

    def value(self, query: QueryContext, passage: Passage) -> float:  # noqa: ARG002
        """Return 1 if the passage contains SQL, else 0."""
        return 1.0 if _SQL_BLOCK.search(passage.text) else 0.0


class DepartmentMatch(_DepartmentSignal):
    """Prefer documents of the reader's department (principal `department:hr`).

    A preference only: access is decided by the ACL of the document.
    """

    weight: Number = 1.0
    how: Literal["add", "multiply"] = "multiply"
    same: Number = Field(default=0.2, description="For documents of the reader's department.")
    other: Number = Field(default=-0.1, description="For those of another.")
    privileged: tuple[str, ...] = Field(default=(), description="Roles, `role:Manager`, to whom all are alike.")

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return `same` or `other`; 0 for privileged readers and unknown departments."""
        departments, department = query.principals_of_kind(self.key), self.department(passage)
        if not departments or department is None or query.principals_of_kind("role").intersection(self.privileged):
            return 0.0
        return self.same if department in departments else self.other


class Diversity(SelectionSignal):
    """Reorder by maximal marginal relevance, to separate near-duplicates.

    The next passage has the highest score minus `penalty` times its largest Jaccard similarity to the passages chosen
    before. Source: Carbonell and Goldstein, "The Use of MMR" (SIGIR 1998).
    """

    penalty: Share = Field(default=0.3, description="What a passage loses that repeats an earlier one word for word.")

    def select(self, query: QueryContext, passages: Sequence[Passage]) -> list[Passage]:  # noqa: ARG002
        """Return all passages reordered, the penalty subtracted from each score."""
        max_similarity = dict.fromkeys(range(len(passages)), 0.0)
        reordered = []
        while max_similarity:
            best = max(max_similarity, key=lambda at: passages[at].score - self.penalty * max_similarity[at])
            similarity = max_similarity.pop(best)
            reordered.append(replace(passages[best], score=passages[best].score - self.penalty * similarity))
            for at in max_similarity:
                max_similarity[at] = max(max_similarity[at], _jaccard(passages[best].text, passages[at].text))
        return reordered


def _jaccard(first: str, second: str) -> float:
    a, b = word_prefixes(first), word_prefixes(second)
    return len(a & b) / len(a | b) if a or b else 0.0


class ExactPhrase(ScoreSignal):
    """Score passages that contain the whole query text."""

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return 1 if the text contains the query.

        Ignores case, white space and final punctuation.
        """
        phrase = " ".join(query.text.lower().rstrip(".?! ").split())
        return 1.0 if phrase and phrase in " ".join(passage.text.lower().split()) else 0.0


class HeaderMatch(ScoreSignal):
    """Score the share of innermost-heading words that occur in the query."""

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return the share, 0 to 1; 0 without a heading."""
        heading = word_prefixes(passage.section[-1]) if passage.section else frozenset()
        return len(heading & query.words) / len(heading) if heading else 0.0


class IntroPenalty(ScoreSignal):
    """Score introductory sections, which match every query; use a negative weight."""

    titles: tuple[str, ...] = Field(
        default=("introduction", "intro", "overview", "purpose", "preface", "background", "scope"),
        description="Headings with any of the words of these introduce.",
    )

    def value(self, query: QueryContext, passage: Passage) -> float:  # noqa: ARG002
        """Return 1 for a document's start or a heading in `titles`."""
        is_start = passage.chunk_index == 0 and len(passage.section) <= 1
        heading = passage.section[-1] if passage.section else ""
        return 1.0 if is_start or word_prefixes(heading) & word_prefixes(" ".join(self.titles)) else 0.0


class KeywordGate(SelectionSignal):
    """Drop passages without a term of the query.

    If no passage has the term, all stay.
    """

    terms: tuple[str, ...] = Field(min_length=1, description="Beginnings of words: `churn` matches churned too.")

    def select(self, query: QueryContext, passages: Sequence[Passage]) -> list[Passage]:
        """Return passages with every required term, in text or headings."""
        selection = list(passages)
        for term in self.terms:
            pattern = re.compile(rf"\b{re.escape(term)}", re.IGNORECASE)
            if pattern.search(query.text):
                matching = [
                    passage for passage in selection if pattern.search(" ".join((*passage.section, passage.text)))
                ]
                selection = matching or selection
        return selection


class MinimumScore(SelectionSignal):
    """Drop passages below a minimum score, after all score signals."""

    minimum: Number = Field(description="As a share of the best score before signals, which is 1.")

    def select(self, query: QueryContext, passages: Sequence[Passage]) -> list[Passage]:  # noqa: ARG002
        """Return passages with at least the minimum score."""
        return [passage for passage in passages if passage.score >= self.minimum]


class OnePerSource(SelectionSignal):
    """Keep the best `limit` passages of each source."""

    limit: Count = Field(default=1, description="Passages of one source.")

    def select(self, query: QueryContext, passages: Sequence[Passage]) -> list[Passage]:  # noqa: ARG002
        """Return the first `limit` passages of each source."""
        count_by_source: Counter[str] = Counter()
        selection = []
        for passage in passages:
            count_by_source[passage.source] += 1
            if count_by_source[passage.source] <= self.limit:
                selection.append(passage)
        return selection


class Recency(ScoreSignal):
    """Score recent documents: 2 ** -(age in days / half_life_days)."""

    key: str = Field(default="date", description="Key of the metadata with a date, 2026-03-31.")
    half_life_days: Count = Field(default=180, description="Days after which a document is worth half.")

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return 0 without a date; a future date counts as today."""
        try:
            published = date.fromisoformat(str(passage.metadata.get(self.key))[:10])
        except ValueError:
            return 0.0
        return float(2 ** -(max(0, (query.today - published).days) / self.half_life_days))


class RolePreference(_DepartmentSignal):
    """Prefer documents of departments listed for the reader's roles."""

    weight: Number = 0.15
    how: Literal["add", "multiply"] = "multiply"
    roles: Mapping[str, tuple[str, ...]] = Field(description="Departments by role: `SecurityAnalyst: [security, it]`.")

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return 1 if one of the roles prefers the department, else 0."""
        department = self.department(passage)
        return float(any(department in self.roles.get(role, ()) for role in query.principals_of_kind("role")))


class SourceBonus(ScoreSignal):
    """Add a value by file name pattern and one by media type."""

    files: Mapping[str, Number] = Field(default={}, description="Value by pattern of file names; the first counts.")
    media_types: Mapping[str, Number] = Field(default={}, description="Value by media type, `text/markdown`.")

    def value(self, query: QueryContext, passage: Passage) -> float:  # noqa: ARG002
        """Return the sum of both values."""
        name = passage.source.rpartition("/")[2]
        of_file = next((value for pattern, value in self.files.items() if fnmatchcase(name, pattern)), 0.0)
        return of_file + self.media_types.get(passage.media_type, 0.0)


_SQL_WORD = re.compile(r"\w+")


class SqlKeywords(ScoreSignal):
    """Count SQL keywords that query and passage share."""

    keywords: tuple[str, ...] = Field(
        default=("select", "sum", "count", "avg", "group", "where", "order"), description="In lower case."
    )

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return the number of shared keywords."""
        in_question = {word for word in _SQL_WORD.findall(query.text.lower()) if word in self.keywords}
        return float(len(in_question.intersection(_SQL_WORD.findall(passage.text.lower())))) if in_question else 0.0


class WordOverlap(ScoreSignal):
    """Score the share of query words that the passage contains."""

    def value(self, query: QueryContext, passage: Passage) -> float:
        """Return |query words ∩ passage words| / |query words|.

        The result is 0 without query words.
        """
        query_words = query.words
        return len(query_words & word_prefixes(passage.text)) / len(query_words) if query_words else 0.0


RULES: Mapping[str, type[ScoreSignal | SelectionSignal]] = {
    "contains_sql": ContainsSql,
    "department_match": DepartmentMatch,
    "diversity": Diversity,
    "exact_phrase": ExactPhrase,
    "header_match": HeaderMatch,
    "intro_penalty": IntroPenalty,
    "keyword_gate": KeywordGate,
    "minimum_score": MinimumScore,
    "one_per_source": OnePerSource,
    "recency": Recency,
    "role_preference": RolePreference,
    "source_bonus": SourceBonus,
    "sql_keywords": SqlKeywords,
    "word_overlap": WordOverlap,
}
