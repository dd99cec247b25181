"""Divide a question into the questions that it joins."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kosmos_rag.answering.words import words

MAX_PARTS = 3
"""Each part is a search of its own."""

_MIN_WORDS = 3
_WORD = re.compile(r"\w+")
_QUOTES = re.compile('["“”„«»]')


@dataclass(frozen=True, kw_only=True, slots=True)
class _Grammar:
    """How a language joins questions."""

    join: re.Pattern[str]
    """A conjunction before a question."""
    opening: re.Pattern[str]
    """The beginning of a question."""
    references: frozenset[str]
    """Words that refer back."""


def _read_grammar() -> Iterator[_Grammar]:
    for line in (Path(__file__).parent / "question_parts.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            conjunctions, prepositions, openings, references = (part.split() for part in line.split(":")[1].split("|"))
            opening = rf"(?:(?:{'|'.join(prepositions)})\s+)?(?:{'|'.join(openings)})\b"
            yield _Grammar(
                join=re.compile(rf",?\s+(?:{'|'.join(conjunctions)})\s+(?={opening})", re.IGNORECASE),
                opening=re.compile(rf"¿?{opening}", re.IGNORECASE),
                references=frozenset(references),
            )


_GRAMMAR = tuple(_read_grammar())
_QUESTION_MARKS = ("?", "\uff1f")
_QUESTION_END = re.compile(r"(?<=[?\uff1f])\s*(?=\S)")


def split_question(question: str) -> tuple[str, ...]:
    """Return the questions that a text joins, or the text alone.

    It is divided after question marks, and at "and" or another conjunction before a question word, in English, German
    and Spanish. Each part has three words, one of which names something, and no later one refers back by "it" or the
    like.
    A text with quoted phrases or with more than `MAX_PARTS` parts is not divided.
    """
    parts = tuple(part for sentence in _QUESTION_END.split(question.strip()) for part in _split_joined(sentence))
    divisible = 1 < len(parts) <= MAX_PARTS and not _QUOTES.search(question) and all(map(_is_complete, parts))
    return parts if divisible and not any(map(_refers_back, parts[1:])) else (question,)


def _split_joined(sentence: str) -> list[str]:
    for grammar in _GRAMMAR:
        if grammar.opening.match(sentence) and len(parts := grammar.join.split(sentence)) > 1:
            return [part if part.endswith(_QUESTION_MARKS) else f"{part}?" for part in parts]
    return [sentence]


def _is_complete(part: str) -> bool:
    """Return whether a part is a question by itself, as "how rarely?" is not."""
    return len(_WORD.findall(part)) >= _MIN_WORDS and bool(words(part))


def _refers_back(part: str) -> bool:
    part_words = frozenset(_WORD.findall(part.casefold()))
    return any(part_words & grammar.references for grammar in _GRAMMAR)
