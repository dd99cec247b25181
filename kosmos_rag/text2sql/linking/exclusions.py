"""What columns are not for, as hand-written recipes say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kosmos_rag.core.types import DocumentInfo
from kosmos_rag.text2sql.linking.linking import Linked
from kosmos_rag.text2sql.linking.words import is_content_word, question_words, stem
from kosmos_rag.text2sql.records import Ambiguity, ColumnRef, split_column


@dataclass(frozen=True, kw_only=True, slots=True)
class Exclusion:
    """Questions that a column does not answer."""

    database: str
    slug: str
    """Of the recipe that says so."""
    column: ColumnRef
    phrase: str
    """Questions with all words of it, in any form."""

    @property
    def note(self) -> Ambiguity:
        """The exclusion as a decision to take before SQL is written."""
        name = ".".join(self.column)
        return Ambiguity(kind="excluded", about=(name,), text=f"{name} does not answer questions about {self.phrase}.")


def read_exclusions(documents: Iterable[DocumentInfo]) -> list[Exclusion]:
    """Return the exclusions of the recipes among these documents."""
    return [
        Exclusion(
            database=document.metadata["database"],
            slug=document.metadata["slug"],
            column=split_column(document.metadata["columns"][0], document.metadata["tables"]),
            phrase=phrase,
        )
        for document in documents
        if document.metadata.get("kind") == "query_recipe"
        for phrase in document.metadata.get("not_for", ())
    ]


def find_exclusions(exclusions: Sequence[Exclusion], question: str, database: str) -> list[Exclusion]:
    """Return the exclusions that apply to a question on a database."""
    question_stems = _stems(question)
    return [item for item in exclusions if item.database == database and _stems(item.phrase) <= question_stems]


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in question_words(text) if is_content_word(word))


def exclude_columns(linked: Linked, excluded: Iterable[ColumnRef]) -> Linked:
    """Move columns behind all others, as unsupported ones."""
    names = frozenset(excluded)
    is_excluded = [(column.table, column.column) in names for column in linked.columns]
    included = [column for column, out in zip(linked.columns, is_excluded, strict=True) if not out]
    moved = [column for column, out in zip(linked.columns, is_excluded, strict=True) if out]
    supported = linked.supported - sum(is_excluded[: linked.supported])
    return replace(linked, columns=(*included, *moved), supported=supported)
