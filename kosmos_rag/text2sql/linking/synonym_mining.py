"""Synonyms that a log of questions suggests: words that people say where they come to mean a name."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kosmos_rag.core.errors import SchemaInvalid
from kosmos_rag.text2sql.catalog.naming import spoken
from kosmos_rag.text2sql.linking.words import is_content_word, question_words, stem, stem_name

_SHARE = 0.5
"""Least share of the questions with a word in which the name was chosen: below, the word goes with anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedQuestion:
    """A question and the columns that were chosen for it."""

    question: str
    chosen: tuple[str, ...]
    """`table.column` or `Model.column`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """That a word may mean a name."""

    word: str
    name: str
    """The column's name as it is spoken."""
    questions: int
    """In how many questions it did."""
    share: float
    """Of the questions that say the word."""


def read_log(path: Path) -> list[LoggedQuestion]:
    """Read JSON Lines of `question` and `chosen`. Raises SchemaInvalid, which names every line that is none."""
    found, problems = [], []
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
            found.append(LoggedQuestion(question=question, chosen=tuple(chosen)))
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise SchemaInvalid(f"log {path}", problems)
    return found


def suggested(log: Iterable[LoggedQuestion], *, minimum: int = 3) -> list[Suggestion]:
    """Return words that stand where a name was chosen that the question does not say, the surest first.

    In at least `minimum` different questions, and in half of those that say the word.
    """
    said: Counter[str] = Counter()
    together: Counter[tuple[str, str]] = Counter()
    for question, chosen in {entry.question.lower(): entry.chosen for entry in log}.items():
        words = {word for word in question_words(question) if is_content_word(word)}
        said.update(words)
        stems = {stem(word) for word in words}
        for name in {reference.rpartition(".")[2] for reference in chosen}:
            own = set(stem_name(name))
            if not own & stems:
                together.update((word, spoken(name)) for word in words if stem(word) not in own)
    found = [
        Suggestion(word=word, name=name, questions=count, share=count / said[word])
        for (word, name), count in together.items()
        if count >= minimum and count / said[word] >= _SHARE
    ]
    return sorted(found, key=lambda it: (-it.share, -it.questions, it.word, it.name))
