"""Question files: questions with the locations of their answers, and unanswerable questions."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import yaml

from kosmos_rag.core.errors import RequestError, first_line
from kosmos_rag.core.types import are_names


class HasLocation(Protocol):
    """Has a location in a document: a passage, a citation."""

    @property
    def source(self) -> str:
        """The source of its document."""
        ...

    @property
    def section(self) -> tuple[str, ...]:
        """The headings above it, the outermost first."""
        ...

    @property
    def line_start(self) -> int:
        """Its first line, from 1."""
        ...

    @property
    def line_end(self) -> int:
        """Its last line."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """Location of an answer: a document, its section, or lines."""

    source: str
    """The document's source, or the end of it after a slash; its file extension is optional."""
    section: str | None = None
    """Text of the heading above it."""
    lines: tuple[int, int] | None = None
    """First and last line, from 1."""
    grade: int = 1
    """Relevance grade; 0: not relevant."""

    @property
    def name(self) -> str:
        """Name in rankings and judgements."""
        section = f"#{self.section}" if self.section else ""
        return f"{self.source}{section}" + (f":{self.lines[0]}-{self.lines[1]}" if self.lines else "")

    def matches_source(self, source: str) -> bool:
        """Return whether the location is in the document of this source."""
        return any(f"/{name}".endswith(f"/{self.source}") for name in (source, _strip_extension(source)))

    def covers(self, at: HasLocation) -> bool:
        """Return whether a passage or citation overlaps this location."""
        return (
            self.matches_source(at.source)
            and (self.section is None or _normalise(self.section) in map(_normalise, at.section))
            and (self.lines is None or (at.line_start <= self.lines[1] and self.lines[0] <= at.line_end))
        )


def _strip_extension(source: str) -> str:
    stem, dot, extension = source.rpartition(".")
    return stem if dot and "/" not in extension else source


def _normalise(heading: str) -> str:
    return " ".join(heading.casefold().split())


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question with the locations of its answers."""

    id: str
    text: str
    locations: tuple[Location, ...] = ()
    """Empty if the question is unanswerable."""
    documents: Mapping[str, int] = field(default_factory=dict)
    """Grades by source, in a set that judges documents; `locations` are ignored then."""
    checked: date | None = None
    """The day on which a person last compared the locations with the documents."""
    principals: tuple[str, ...] = ()
    """What its reader holds in addition to `everyone`; empty for the reader of the evaluation."""

    @property
    def grades(self) -> dict[str, int]:
        """Relevance grades by name."""
        return dict(self.documents) or {location.name: location.grade for location in self.locations}

    @property
    def answerable(self) -> bool:
        """Whether any judged name is relevant."""
        return any(grade > 0 for grade in self.grades.values())

    def list_passage_names(self, at: HasLocation) -> list[str]:
        """Return the names of a passage in a ranking.

        Those of the locations it overlaps, or else one of its own. Its own name is as specific as the most specific
        location of the question: lines, a section, or a document.
        """
        if self.documents:
            return [at.source]
        names = [location.name for location in self.locations if location.covers(at)]
        if names:
            return names
        if any(location.lines for location in self.locations):
            return [f"{at.source}:{at.line_start}-{at.line_end}"]
        if any(location.section for location in self.locations):
            return [f"{at.source}#{' / '.join(at.section)}"]
        return [at.source]

    def is_answered_in(self, at: HasLocation) -> bool:
        """Return whether a passage or citation overlaps a relevant location."""
        return any(self.grades.get(name, 0) > 0 for name in self.list_passage_names(at))


@dataclass(frozen=True, kw_only=True)
class QuestionSet:
    """A named set of questions."""

    name: str
    questions: tuple[Question, ...]
    of_readers: bool = False
    """Whether they are judged questions, which an erasure may remove."""

    @cached_property
    def sha256(self) -> str:
        """Hash of questions and judgements.

        Evaluations with equal hashes can be compared question by question.
        """
        content = [_content(question) for question in sorted(self.questions, key=lambda question: question.id)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def part(self, name: str, predicate: Callable[[Question], bool]) -> "QuestionSet":
        """Return the questions that satisfy the predicate, as a named set."""
        return replace(self, name=name, questions=tuple(filter(predicate, self.questions)))


def _content(question: Question) -> dict[str, Any]:
    """Return what the hash of a set is of: without principals that of earlier releases."""
    content = asdict(question)
    del content["checked"]
    if not question.principals:
        del content["principals"]
    return content


def hash_question(text: str) -> str:
    """Return an id for a question: a hash of its text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_questions(path: Path) -> QuestionSet:
    """Read a question file (docs/evaluation.md). Raises RequestError, which names the malformed question."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise RequestError(
            f"the question file {str(path)!r}{line} is not YAML: {error.problem}; correct it there, or quote the text"
        ) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RequestError(f"the question file {str(path)!r} cannot be read: {first_line(error)}") from error
    entries: list[Any] = content if isinstance(content, list) else [None]
    if not entries or not all(isinstance(entry, dict) and _is_text(entry.get("question")) for entry in entries):
        raise RequestError(
            f"the question file {str(path)!r} is not a list of questions; "
            "write `- question: …` and below it `source: handbook.md`, for each"
        )
    questions = [_question(entry, f"question {number} of {path}") for number, entry in enumerate(entries, start=1)]
    require_unique_ids(questions, path)
    return QuestionSet(name=path.stem, questions=tuple(questions))


def require_unique_ids(questions: Sequence[Question], path: Path) -> None:
    """Raise RequestError if questions share an id.

    Their results could not be distinguished.
    """
    counts = Counter(question.id for question in questions)
    if duplicate := next((question for question in questions if counts[question.id] > 1), None):
        raise RequestError(f"the question {duplicate.text!r} occurs twice in {path}; remove one, or give each an `id`")


def _question(entry: Mapping[str, Any], subject: str) -> Question:
    text = entry["question"]
    expected = entry.get("expected", [entry] if "source" in entry else [])
    if not isinstance(expected, list):
        raise RequestError(
            f"`expected` of {subject} is {expected!r}; write a list of locations, `- source: handbook.md`"
        )
    locations = tuple(_location(fields, subject) for fields in expected)
    if bool(locations) is (entry.get("answerable", True) is False):
        raise RequestError(
            f"{subject} ({text!r}) must either name the location of its answer or have none: "
            "write `source: handbook.md` below it, or `answerable: false`"
        )
    principals = entry.get("principals", [])
    if not are_names(principals) or not all(principals):
        raise RequestError(f"`principals` of {subject} are {principals!r}; write names, [department:hr]")
    return Question(
        id=str(entry.get("id", hash_question(text))),
        text=text,
        locations=locations,
        checked=_day(entry, subject),
        principals=tuple(principals),
    )


def _day(entry: Mapping[str, Any], subject: str) -> date | None:
    checked = entry.get("checked")
    if checked is not None and type(checked) is not date:
        raise RequestError(f"`checked` of {subject} is {checked!r}; write the day, 2026-11-01, without quotes")
    return checked


def _location(fields: Any, subject: str) -> Location:
    if not isinstance(fields, dict) or not _is_text(fields.get("source")):
        raise RequestError(f"{subject} names no source of its answer; write `source: handbook.md`")
    section, lines, grade = fields.get("section"), fields.get("lines"), fields.get("grade", 1)
    if section is not None and not _is_text(section):
        raise RequestError(f"`section` of {subject} is {section!r}; write the text of one heading, in quotes")
    if lines is not None and not (_are_integers(lines) and 1 <= lines[0] <= lines[-1]):
        raise RequestError(f"`lines` of {subject} is {lines!r}; write first and last line, [12, 18]")
    if not _are_integers([grade]) or grade < 0:
        raise RequestError(f"`grade` of {subject} is {grade!r}; write 1, or more for better answers")
    return Location(
        source=fields["source"], section=section, lines=(lines[0], lines[-1]) if lines else None, grade=int(grade)
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_integers(values: Any) -> bool:
    return (
        isinstance(values, list)
        and 1 <= len(values) <= 2
        and all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    )


def dump_questions(questions: Iterable[tuple[Question, str]]) -> str:
    """Return the text of a question file.

    Each question comes with its method of generation.
    """
    entries = []
    for question, kind in questions:
        (location,) = question.locations
        entry: dict[str, Any] = {"question": question.text, "source": location.source}
        if location.lines:
            entry["lines"] = list(location.lines)
        entries.append({**entry, "made_by": kind})
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=120)
