"""A question made fit to be asked, or refused with a reason."""

import re
from dataclasses import dataclass

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Filter
from kosmos_rag.retrieval.filters import check

_LETTER = r"[^\W\d_²³¹¼½¾]"
_QUOTE = '["“”]'

# A quote opens where no word ends before it: 5" is a size. A required term ends at a quote, which is read as it would
# be without the operator; an excluded one takes it along, or what goes would change how the rest is read.
_MARKED = re.compile(
    rf"""
      (?P<of_phrase>(?<!\S)[+-])? (?<!\w){_QUOTE} (?P<phrase>[^"“”]*) {_QUOTE} (?P<joined>(?=\w|{_QUOTE}))?
    | (?<!\S)(?P<of_term>(?P<plus>\+)|-) (?P<term>{_LETTER}(?(plus)[^\s"“”]*|\S*))
    """,
    re.VERBOSE,
)
_OPERATOR = re.compile(rf"(?<!\S)[+-](?={_LETTER})")
_AFTER_TERM = ".,;:!?)]}'\"“”…"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a question asks for. A term is one word, or several where it stood in quotes."""

    text: str
    """What is embedded and analysed: without operators, quotes and excluded terms."""
    phrases: tuple[str, ...]
    required: tuple[str, ...]
    excluded: tuple[str, ...]


def parse(question: str) -> Question:
    """Read the operators of a question. Any text is a question: what is no operator is a word."""
    found: dict[str, dict[str, None]] = {"": {}, "+": {}, "-": {}}

    def plain(match: re.Match[str]) -> str:
        operator = match["of_phrase"] or match["of_term"] or ""
        words = " ".join((match["phrase"] or match["term"] or "").split())
        term = words.rstrip(_AFTER_TERM) if match["of_term"] else words
        # One word has no order to keep: quotes around it stress it, as they do in prose.
        if any(character.isalnum() for character in term) and (operator or " " in term):
            found[operator][term] = None
        if operator == "-":
            return " "
        return words if match["joined"] is None else f"{words} "

    marked = " ".join(_MARKED.sub(plain, question).split())
    return Question(
        # Operators within a phrase, or before what an excluded term has left, would be read as such the next time.
        text=_OPERATOR.sub("", marked),
        phrases=tuple(found[""]),
        required=tuple(found["+"]),
        excluded=tuple(found["-"]),
    )


MAX_K = 1000
MAX_OPERATORS = 32
"""Phrases, required and excluded terms of one question together: each is a condition of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A valid question: not blank, of bounded length, encodable."""

    question: str
    """As it was asked, without control characters."""
    parsed: Question
    k: int
    filter: Filter


def request(question: str, *, k: int, filter: Filter | None, max_chars: int) -> Request:  # noqa: A002
    """Check a question. Raises RequestError, naming what is wrong with it.

    Control characters become spaces and lone surrogates go: neither means anything, and PostgreSQL refuses both.
    """
    cleaned = "".join(character if character.isprintable() else " " for character in question)
    cleaned = " ".join(cleaned.encode("utf-8", "ignore").decode().split())
    if not cleaned:
        raise RequestError("the question is empty; ask something")
    if len(cleaned) > max_chars:
        raise RequestError(
            f"the question has {len(cleaned):,} characters and rag.retrieval.max_question_chars allows {max_chars:,}; "
            "shorten it, or ingest long text as a document"
        )
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K:
        raise RequestError(f"k is {k!r}; ask for 1 to {MAX_K} hits")
    wanted = Filter() if filter is None else filter
    check(wanted)
    return Request(question=cleaned, parsed=_parsed(cleaned), k=k, filter=wanted)


def _parsed(cleaned: str) -> Question:
    parsed = parse(cleaned)
    if not parsed.text:
        if parsed.excluded:
            raise RequestError(f"the question {cleaned!r} excludes everything it names; say what to look for")
        raise RequestError("the question is empty; ask something")
    operators = len(parsed.phrases) + len(parsed.required) + len(parsed.excluded)
    if operators > MAX_OPERATORS:
        raise RequestError(
            f"the question has {operators} phrases, required and excluded terms; use at most {MAX_OPERATORS}"
        )
    return parsed
