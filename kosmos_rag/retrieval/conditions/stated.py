"""Conditions that a question states in words: times, titles, and values of metadata.

`since March`, `in the travel policy` and `by the finance team` are conditions where found documents have such dates,
titles or values. A passage conflicts with a condition if its document has another value. It follows the passages
without a conflict then; a document without any such value conflicts with none. A condition that no passage satisfies
changes nothing. The words are in field_words.yaml.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeAlias

import yaml

from kosmos_rag.core.freshness import VALIDITY_KEYS, parse_date
from kosmos_rag.core.types import Passage, StatedCondition
from kosmos_rag.retrieval.conditions.time_ranges import TIME_CUE, TimeRange, find_time_ranges
from kosmos_rag.retrieval.fusion import PHRASE

Verdict: TypeAlias = bool | None
"""Whether a passage satisfies a condition; None where its document has no such value."""

_WORDS: Mapping[str, Any] = yaml.safe_load(files(__package__).joinpath("field_words.yaml").read_text(encoding="utf-8"))
_FIELDS: Mapping[str, Mapping[str, Sequence[str]]] = _WORDS["fields"]
_BEFORE_TITLES, _ARTICLES = frozenset(_WORDS["before_titles"]), frozenset(_WORDS["articles"])
_NAMES_BY_WORD: Mapping[str, list[str]] = {
    word: [name for name, field in _FIELDS.items() if word in (*field["words"], *field.get("before", ()))]
    for field in _FIELDS.values()
    for word in (*field["words"], *field.get("before", ()))
}
_WORD = re.compile(r"\w+")
_SIGNAL = "condition"
_MAX_VALUE_WORDS = 8
"""Words of a value of metadata that a question may name; a longer one is a text."""


class Token(NamedTuple):
    """A word of a question, for comparison, and its position."""

    word: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """The conditions of a question on the passages that the search found."""

    stated: tuple[StatedCondition, ...] = ()
    tests: tuple[Callable[[Passage], Verdict], ...] = ()
    """One for each kind of field, of those that a passage satisfies."""

    def order(self, passages: Sequence[Passage]) -> list[Passage]:
        """Return the passages, those with fewer conflicts first.

        Passages with the quoted phrases of the question stay before the others. A score that would contradict the
        order is lowered; `signals` has by how much.
        """
        if not self.tests:
            return list(passages)
        conflicts = {passage.chunk_id: sum(test(passage) is False for test in self.tests) for passage in passages}
        ranking = sorted(
            passages, key=lambda passage: (PHRASE not in passage.score_contributions, conflicts[passage.chunk_id])
        )
        return list(_lower_scores(ranking, conflicts))


NO_CONDITIONS = Conditions()


def _lower_scores(ranking: Sequence[Passage], conflicts: Mapping[Any, int]) -> Iterator[Passage]:
    """Yield the passages; scores of those with conflicts are at most those of the passages before."""
    least, loss, level = float("inf"), 0.0, 0
    for passage in ranking:
        if (count := conflicts[passage.chunk_id]) > level:
            level, loss = count, max(0.0, passage.score - least)
        lowered = passage
        if level and loss:
            lowered = replace(passage, score=passage.score - loss, signals={**passage.signals, _SIGNAL: -loss})
        least = min(least, lowered.score)
        yield lowered


@dataclass(frozen=True, kw_only=True, slots=True)
class Cues:
    """The words of a question that may state a condition."""

    question: str
    tokens: Sequence[Token] = ()
    words: Sequence[str] = ()
    """Of the tokens."""
    times: tuple[TimeRange, ...] = ()
    title_starts: Sequence[int] = ()
    """Words that follow one that comes before titles, with or without an article between them."""
    first_words: frozenset[str] = frozenset()
    """These words."""
    fields: tuple[str, ...] = ()
    """Fields that it may name a value of, as in field_words.yaml."""

    def find_title(self, title: str, source: str) -> str | None:
        """Return the part of the question that names a document by its title or file name."""
        for words in _titles(title, source):
            # Most titles have none of them.
            for start in () if self.first_words.isdisjoint(words) else self.title_starts:
                if end := _match_title(self.words, start, words):
                    return self.question[self.tokens[start].start : self.tokens[end - 1].end]
        return None

    def concern(self, metadata: Mapping[str, Any], department: str | None) -> bool:
        """Return whether a document has a date or a value where the question may name another.

        Where none of the first passages has, none of them can conflict with such a condition, whatever is below.
        """
        if self.times and _days(metadata):
            return True
        return any(next(_values(metadata, department, name), None) is not None for name in self.fields)


def find_cues(question: str, today: date) -> Cues:
    """Find the words of a question that may state a condition.

    Args:
        question: The question without operators.
        today: Reference date of relative times.
    """
    times = find_time_ranges(question, today) if TIME_CUE.search(question) else ()
    tokens = [Token(match[0].casefold(), *match.span()) for match in _WORD.finditer(question)]
    words, title_starts, follows = [token.word for token in tokens], list[int](), False
    for position, word in enumerate(words):
        if follows:
            title_starts.append(position)
        follows = word in _BEFORE_TITLES or (follows and word in _ARTICLES)
    names = {name for word in words if word in _NAMES_BY_WORD for name in _NAMES_BY_WORD[word]}
    fields = tuple([name for name in _FIELDS if name in names])
    return Cues(
        question=question,
        tokens=tokens,
        words=words,
        times=times,
        title_starts=title_starts,
        first_words=frozenset([words[start] for start in title_starts]),
        fields=fields,
    )


def find_conditions(cues: Cues, passages: Sequence[Passage]) -> Conditions:
    """Return the conditions of a question that found passages have values for."""
    kinds: list[_Stated] = []
    if cues.times:
        kinds.append(_state_times(cues.times))
    if cues.title_starts:
        kinds.append(_state_titles(cues, passages))
    kinds += [_state_values(cues, name, passages) for name in cues.fields]
    stated: list[StatedCondition] = []
    tests: list[Callable[[Passage], Verdict]] = []
    for conditions, test in kinds:
        earlier = {(condition.field, condition.value) for condition in stated}
        new = [condition for condition in conditions if (condition.field, condition.value) not in earlier]
        matching = sum(test(passage) is True for passage in passages) if new else 0
        stated += [replace(condition, matching=matching) for condition in new]
        if matching:
            tests.append(test)
    return Conditions(stated=tuple(stated), tests=tuple(tests)) if stated else NO_CONDITIONS


_Stated: TypeAlias = tuple[list[StatedCondition], Callable[[Passage], Verdict]]


def _state_times(ranges: Sequence[TimeRange]) -> _Stated:
    conditions = [
        StatedCondition(text=item.text, field="date", value=f"{item.start or '..'}/{item.end or '..'}")
        for item in ranges
    ]
    return conditions, partial(_is_dated, ranges)


def _is_dated(ranges: Sequence[TimeRange], passage: Passage) -> Verdict:
    """Return whether a document has a date in one of the ranges.

    A passage that has the time in its words satisfies it too: what is written about 2024 may be dated later.
    """
    text = f"{passage.title} {' '.join(passage.section)} {passage.text}".casefold()
    if any(item.text.casefold() in text for item in ranges):
        return True
    days = _days(passage.metadata)
    if not days:
        return None
    return any(
        (item.start is None or day >= item.start) and (item.end is None or day < item.end)
        for item in ranges
        for day in days
    )


def _days(metadata: Mapping[str, Any]) -> list[date]:
    return [
        day for key, value in metadata.items() if key not in VALIDITY_KEYS and (day := parse_date(value)) is not None
    ]


def _state_titles(cues: Cues, passages: Iterable[Passage]) -> _Stated:
    documents: set[Any] = set()
    conditions: dict[str, StatedCondition] = {}
    for passage in passages:
        if text := cues.find_title(passage.title, passage.source):
            conditions.setdefault(passage.title, StatedCondition(text=text, field="title", value=passage.title))
            documents.add(passage.document_id)
    return list(conditions.values()), lambda passage: passage.document_id in documents


@lru_cache(maxsize=10_000)
def _titles(title: str, source: str) -> tuple[list[str], ...]:
    """Return the words of the title and of the file name, without numbers at the end."""
    titles = []
    for name in dict.fromkeys((title, PurePosixPath(source).stem)):
        words = _split(name)
        while words and words[-1].isdecimal():
            words.pop()
        if words:
            titles.append(words)
    return tuple(titles)


def _split(text: str) -> list[str]:
    return _WORD.findall(text.casefold().replace("_", " "))


def _match_title(token_words: Sequence[str], start: int, title: list[str]) -> int:
    """Return the end of a title that begins at a word, or 0.

    Its end is enough if that is most of its words: "travel policy" names the global travel policy, and "hypersonic
    flow" none of the papers whose titles end so.
    """
    for first in range((len(title) + 1) // 2):
        end = start + len(title) - first
        if title[first] == token_words[start] and token_words[start:end] == title[first:]:
            return end
    return 0


def _state_values(cues: Cues, name: str, passages: Iterable[Passage]) -> _Stated:
    question, tokens = cues.question, cues.tokens
    field = _FIELDS[name]
    words, before = frozenset(field["words"]), frozenset(field.get("before", ()))
    conditions: dict[tuple[str, str], StatedCondition] = {}
    for passage in passages:
        for key, value in _values(passage.metadata, passage.department, name):
            if (key, value) not in conditions and (text := _find_value(question, tokens, value, words, before)):
                conditions[key, value] = StatedCondition(text=text, field=key, value=value)
    return list(conditions.values()), partial(_has_value, name, frozenset(conditions))


def _values(metadata: Mapping[str, Any], department: str | None, name: str) -> Iterator[tuple[str, str]]:
    """Yield the values of a field of a document, by their names in filters."""
    if name == "department" and department is not None:
        yield "department", department
    for key in _FIELDS[name]["keys"]:
        value = metadata.get(key)
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, str | int | float) and not isinstance(item, bool):
                yield f"metadata.{key}", str(item)


def _has_value(name: str, stated: frozenset[tuple[str, str]], passage: Passage) -> Verdict:
    values = set(_values(passage.metadata, passage.department, name))
    return not values.isdisjoint(stated) if values else None


def _find_value(
    question: str, tokens: Sequence[Token], value: str, words: frozenset[str], before: frozenset[str]
) -> str | None:
    """Return the part of a question that names a value of a field."""
    value_words = [word for word in _split(value) if word not in words]
    if not 0 < len(value_words) <= _MAX_VALUE_WORDS:
        return None
    for start in range(len(tokens) - len(value_words) + 1):
        end = start + len(value_words)
        if [token.word for token in tokens[start:end]] != value_words:
            continue
        if end < len(tokens) and tokens[end].word in words:
            return question[tokens[start].start : tokens[end].end]
        first = start - 1
        while first >= 0 and tokens[first].word in _ARTICLES:
            first -= 1
        if first >= 0 and tokens[first].word in words | before:
            return question[tokens[first].start : tokens[end - 1].end]
    return None
