"""Find labels of questions that no longer describe the corpus.

A label names the place of an answer. It is gone if no readable document has that place, and changed if its document was
published after the day on which a person last checked the label.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Literal

from kosmos_rag.core.types import EVERYONE, DocumentInfo
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.offline.questions import Location, Question

_PAGE = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class StaleLabel:
    """A label that no longer describes the corpus."""

    question: str
    """Id of the question."""
    location: Location
    problem: Literal["gone", "changed"]

    def describe(self) -> str:
        """Return the question, the place and the problem in a few words."""
        return f"{self.question} ({self.location.name}) is {self.problem}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Section:
    """A part of a document under its headings."""

    source: str
    section: tuple[str, ...]
    line_start: int
    line_end: int


def find_stale_labels_as_asked(
    tenant: Tenant, questions: Sequence[Question], open_reader: Callable[[tuple[str, ...]], Tenant]
) -> list[StaleLabel]:
    """Return the stale labels; those of a question with principals as its reader sees the documents.

    Args:
        open_reader: Opens the tenant for a reader with these principals.

    Raises DatabaseError.
    """
    groups: dict[tuple[str, ...], list[Question]] = {}
    for question in questions:
        groups.setdefault(question.principals, []).append(question)
    return [
        label
        for principals, group in groups.items()
        for label in find_stale_labels(open_reader((EVERYONE, *principals)) if principals else tenant, group)
    ]


def find_stale_labels(tenant: Tenant, questions: Sequence[Question]) -> list[StaleLabel]:
    """Return the stale labels of questions, in their order.

    Args:
        tenant: The reader whose documents count, with the collection of the questions.

    Raises DatabaseError.
    """
    labels = [(question, location) for question in questions for location in question.locations if location.grade > 0]
    documents = _find_documents(tenant, {location.source for _, location in labels})
    sections: dict[uuid.UUID, list[_Section]] = {}
    stale = []
    for question, location in labels:
        matching = documents[location.source]
        if location.section is not None or location.lines is not None:
            matching = [
                document
                for document in matching
                if any(location.covers(part) for part in _list_sections(tenant, document, sections))
            ]
        if not matching:
            stale.append(StaleLabel(question=question.id, location=location, problem="gone"))
        elif question.checked is not None and all(
            document.updated_at.astimezone(UTC).date() > question.checked for document in matching
        ):
            stale.append(StaleLabel(question=question.id, location=location, problem="changed"))
    return stale


def drop_gone_labels(questions: Sequence[Question], stale: Sequence[StaleLabel]) -> tuple[Question, ...]:
    """Return the questions without labels that are gone, and without questions that have no other."""
    absent = {(label.question, label.location) for label in stale if label.problem == "gone"}
    remaining = (
        replace(
            question,
            locations=tuple(location for location in question.locations if (question.id, location) not in absent),
        )
        for question in questions
    )
    return tuple(question for question in remaining if question.answerable)


def _find_documents(tenant: Tenant, sources: set[str]) -> Mapping[str, list[DocumentInfo]]:
    """Return the documents that each source of a label names."""
    by_name: dict[str, list[Location]] = {}
    for source in sources:
        by_name.setdefault(_base_name(source), []).append(Location(source=source))
    documents: dict[str, list[DocumentInfo]] = {source: [] for source in sources}
    for document in _list_documents(tenant):
        for location in by_name.get(_base_name(document.source), ()):
            if location.matches_source(document.source):
                documents[location.source].append(document)
    return documents


def _base_name(source: str) -> str:
    """Return the last part of a source, without its extension."""
    return source.rpartition("/")[2].partition(".")[0]


def _list_documents(tenant: Tenant) -> Iterator[DocumentInfo]:
    after = None
    while page := tenant.documents(after=after, limit=_PAGE):
        yield from page
        after = page[-1].position("source")


def _list_sections(tenant: Tenant, document: DocumentInfo, sections: dict[uuid.UUID, list[_Section]]) -> list[_Section]:
    """Return the sections of a document, read once."""
    if document.id not in sections:
        sections[document.id] = [
            _Section(source=document.source, section=part.section, line_start=part.line_start, line_end=part.line_end)
            for part in tenant.sections(document.id)
        ]
    return sections[document.id]
