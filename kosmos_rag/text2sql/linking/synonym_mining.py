"""Mine synonyms from a log of questions and chosen columns."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kosmos_rag.text2sql.catalog.naming import humanize
from kosmos_rag.text2sql.errors import SchemaInvalid
from kosmos_rag.text2sql.linking.words import is_content_word, question_words, stem, stem_name

_MIN_SHARE = 0.5
"""Minimum share of the questions with a word in which the name was chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedQuestion:
    """A question and the columns that were chosen for it."""

    question: str
    chosen: tuple[str, ...]
    """`table.column` or `Model.column`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """A suggested synonym: a word for a name."""

    word: str
    name: str
    """The column's name as words."""
    questions: int
    """Number of questions."""
    share: float
    """Share of the questions with the word."""


def read_log(path: Path) -> list[LoggedQuestion]:
    """Read JSON Lines of `question` and `chosen`.

    Raises:
        SchemaInvalid: The file cannot be read, or lines are malformed; lists all of them.
    """
    entries, problems = [], []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaInvalid(f"log {path}", [f"it cannot be read: {error}"]) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            question, chosen = row["question"], row["chosen"]
            if not isinstance(question, str) or not all(isinstance(name, str) for name in chosen):
                raise TypeError("question must be text, chosen a list of texts")
            entries.append(LoggedQuestion(question=question, chosen=tuple(chosen)))
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise SchemaInvalid(f"log {path}", problems)
    return entries


def suggest_synonyms(log: Iterable[LoggedQuestion], *, minimum: int = 3) -> list[Suggestion]:
    """Suggest words that co-occur with a chosen name, best first.

    Only words of questions that do not contain the name count. A suggestion occurs in at least `minimum` different
    questions, and in half of the questions with the word.
    """
    word_counts: Counter[str] = Counter()
    pair_counts: Counter[tuple[str, str]] = Counter()
    for question, chosen in {entry.question.lower(): entry.chosen for entry in log}.items():
        words = {word for word in question_words(question) if is_content_word(word)}
        word_counts.update(words)
        stems = {stem(word) for word in words}
        for name in {reference.rpartition(".")[2] for reference in chosen}:
            name_stems = set(stem_name(name))
            if not name_stems & stems:
                pair_counts.update((word, humanize(name)) for word in words if stem(word) not in name_stems)
    suggestions = [
        Suggestion(word=word, name=name, questions=count, share=count / word_counts[word])
        for (word, name), count in pair_counts.items()
        if count >= minimum and count / word_counts[word] >= _MIN_SHARE
    ]
    return sorted(
        suggestions, key=lambda suggestion: (-suggestion.share, -suggestion.questions, suggestion.word, suggestion.name)
    )
