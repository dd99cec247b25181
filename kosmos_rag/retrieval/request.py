"""A question made fit to be asked, or refused with a reason."""

from dataclasses import dataclass

from kosmos_rag.errors import RequestError
from kosmos_rag.records import Filter
from kosmos_rag.retrieval.filtering import check
from kosmos_rag.retrieval.syntax import Question, parse

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
