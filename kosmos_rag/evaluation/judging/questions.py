"""The judged questions of a tenant: candidates, decisions, and the set for evaluations."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import yaml
from psycopg.rows import kwargs_row

from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.judging.candidates import FeedbackRow, build_candidates, normalise_question
from kosmos_rag.evaluation.judging.records import CandidateQuestion, Judgement
from kosmos_rag.evaluation.offline.questions import Location, Question, QuestionSet, hash_question
from kosmos_rag.evaluation.sql import statement

JUDGED = "judged"
"""Name of the set of accepted questions, where a file may be named too."""
_MAX_ROWS = 20_000
"""Ratings and clicks that candidates are made of, the newest first."""


class JudgedQuestions:
    """Candidates and judged questions of a tenant, or of one of its collections. Thread-safe.

    Every method raises DatabaseError, and ConfigError without `database.worker_url`.
    """

    def __init__(self, tenant: Tenant) -> None:
        """`tenant` has the scope: all collections, or one."""
        self._tenant = tenant
        self._values = {"tenant_id": tenant.id, "collection": tenant.collection}

    def list_candidates(self, judgement: Judgement | str = Judgement.OPEN) -> list[CandidateQuestion]:
        """Return candidates of a judgement, those with the strongest evidence first. Raises RequestError."""
        if judgement not in list(Judgement):
            raise RequestError(f"the judgement is {str(judgement)[:40]!r}; use {', '.join(Judgement)}")
        with self._tenant.sessions.write() as connection:
            decided = self._list_decided(connection)
            if judgement != Judgement.OPEN:
                return [candidate for candidate in decided if candidate.judgement == judgement]
            ids = {candidate.id for candidate in decided}
            return [candidate for candidate, _ in self._build_candidates(connection) if candidate.id not in ids]

    def judge(self, candidate_id: uuid.UUID, judgement: Judgement | str) -> CandidateQuestion:
        """Accept or reject a candidate, or open it again; return it.

        The subject of the tenant is stored as who has decided.

        Raises:
            NotFound: There is no such candidate any more.
            RequestError: The judgement is unknown.
        """
        if judgement not in list(Judgement):
            raise RequestError(f"the judgement is {str(judgement)[:40]!r}; use {', '.join(Judgement)}")
        with self._tenant.sessions.write() as connection:
            # Else a reader who is erased meanwhile would be stored again.
            self._tenant.sessions.lock_erasures(connection)
            decided = next((entry for entry in self._list_decided(connection) if entry.id == candidate_id), None)
            if decided is not None:
                self._set_judgement(connection, candidate_id, judgement)
                return replace(decided, judgement=Judgement(judgement))
            if judgement == Judgement.OPEN:
                raise NotFound("there is no such decision; list the candidates again")
            entry = next((entry for entry in self._build_candidates(connection) if entry[0].id == candidate_id), None)
            if entry is None:
                raise NotFound(
                    "there is no such candidate; its document may have changed, so list the candidates again"
                )
            candidate = replace(entry[0], judgement=Judgement(judgement))
            self._insert(connection, candidate, entry[1])
            return candidate

    def build_set(self) -> QuestionSet:
        """Return the accepted questions, each with all its locations and the principals that they need.

        A question that has a location is answerable, whatever other readers said. Raises RequestError without one.
        """
        groups: dict[str, list[CandidateQuestion]] = defaultdict(list)
        for candidate in self.list_candidates(Judgement.ACCEPTED):
            groups[normalise_question(candidate.question)].append(candidate)
        if not groups:
            raise RequestError(
                f"tenant {self._tenant.name} has no accepted questions; accept candidates by "
                "`kosmos-rag eval candidates accept ID`, or on the page Evaluations of the console"
            )
        return QuestionSet(name=JUDGED, questions=tuple(map(_build_question, groups.values())), of_readers=True)

    def dump(self) -> str:
        """Return the text of a question file with the accepted questions. Raises RequestError without one."""
        entries = [_describe(question) for question in self.build_set().questions]
        return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=120)

    def _build_candidates(self, connection: psycopg.Connection) -> list[tuple[CandidateQuestion, tuple[str, ...]]]:
        rows = connection.execute(statement("list_judging_feedback"), self._values | {"limit": _MAX_ROWS}).fetchall()
        return build_candidates(FeedbackRow(*row) for row in rows)

    def _list_decided(self, connection: psycopg.Connection) -> list[CandidateQuestion]:
        with connection.cursor(row_factory=kwargs_row(_candidate)) as cursor:
            return cursor.execute(statement("list_judged_questions"), self._values).fetchall()

    def _set_judgement(
        self, connection: psycopg.Connection, candidate_id: uuid.UUID, judgement: Judgement | str
    ) -> None:
        values = {"id": candidate_id, "judgement": str(judgement), "at": datetime.now(UTC)}
        values["judge"] = self._tenant.subject
        connection.execute(statement("set_judgement"), self._values | values)

    def _insert(self, connection: psycopg.Connection, candidate: CandidateQuestion, subjects: Sequence[str]) -> None:
        first, last = candidate.lines or (None, None)
        key = {**self._values, "id": candidate.id}
        former = {subject for (subject,) in connection.execute(statement("subjects_of_judged_question"), key)}
        values = {
            **key,
            "at": datetime.now(UTC),
            "judgement": str(candidate.judgement),
            "judge": self._tenant.subject,
            "collection": candidate.collection,
            "question": candidate.question,
            "question_id": hash_question(candidate.question),
            "source": candidate.source,
            "section": candidate.section,
            "line_start": first,
            "line_end": last,
            "principal": candidate.principal,
            "subjects": sorted(former.union(subjects)),
            "ups": candidate.ups,
            "downs": candidate.downs,
            "clicks": candidate.clicks,
            "last_at": candidate.last_at,
        }
        connection.execute(statement("insert_judged_question"), values)


def _candidate(*, judgement: str, line_start: int | None, line_end: int | None, **columns: Any) -> CandidateQuestion:
    lines = None if line_start is None or line_end is None else (line_start, line_end)
    return CandidateQuestion(judgement=Judgement(judgement), lines=lines, **columns)


def _build_question(candidates: Sequence[CandidateQuestion]) -> Question:
    located = [candidate for candidate in candidates if candidate.source is not None]
    text = max(candidates, key=lambda candidate: (candidate.last_at, candidate.question)).question
    return Question(
        id=hash_question(text),
        text=text,
        locations=tuple(
            Location(source=candidate.source or "", section=candidate.section, lines=candidate.lines)
            for candidate in located
        ),
        principals=tuple(sorted({candidate.principal for candidate in located} - {EVERYONE})),
    )


def _describe(question: Question) -> dict[str, Any]:
    entry: dict[str, Any] = {"question": question.text}
    if question.principals:
        entry["principals"] = list(question.principals)
    if not question.locations:
        return entry | {"answerable": False}
    expected = []
    for location in question.locations:
        fields: dict[str, Any] = {"source": location.source}
        if location.section is not None:
            fields["section"] = location.section
        if location.lines is not None:
            fields["lines"] = list(location.lines)
        expected.append(fields)
    return entry | {"expected": expected}
