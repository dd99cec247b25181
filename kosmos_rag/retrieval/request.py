"""A question made fit to be asked, or refused with a reason."""

import math
from dataclasses import dataclass

from kosmos_rag.errors import RequestError
from kosmos_rag.records import Filter, are_names, is_text

MAX_K = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A valid question: not blank, of bounded length, encodable."""

    question: str
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
    return Request(question=cleaned, k=k, filter=_checked(filter or Filter()))


def _checked(given: Filter) -> Filter:
    for key, value in given.metadata.items():
        if not is_text(key) or (isinstance(value, str) and not is_text(value)):
            raise RequestError(f"filter on metadata {key!r} has value {value!r}; remove NUL and lone surrogates")
        if not isinstance(value, str | int | float | bool | None):
            raise RequestError(
                f"filter on metadata {key!r} has value {value!r}; use text, numbers, true, false or null"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise RequestError(f"filter on metadata {key!r} has value {value!r}; use a finite number")
    if not are_names(given.sources):
        raise RequestError(f"filter on sources is {given.sources!r}; give a tuple of names, ('/docs',)")
    return given
