"""Parse queries: their operators, their filter and their limits."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Filter
from kosmos_rag.retrieval.filters import compile_filter
from kosmos_rag.storage.tenants import TenantRef

_LETTER = r"[^\W\d_²³¹¼½¾]"
_QUOTE = '["“”]'

# A quote opens a phrase only where no word ends before it: 5" is a size. A required term ends at a quote, which is then
# parsed as usual. An excluded term includes the quote: without it, the rest of the query would be parsed differently.
_MARKED = re.compile(
    rf"""
      (?P<of_phrase>(?<!\S)[+-])? (?<!\w){_QUOTE} (?P<phrase>[^"“”]*) {_QUOTE} (?P<joined>(?=\w|{_QUOTE}))?
    | (?<!\S)(?P<of_term>(?P<plus>\+)|-) (?P<term>{_LETTER}(?(plus)[^\s"“”]*|\S*))
    """,
    re.VERBOSE,
)
_OPERATOR = re.compile(rf"(?<!\S)[+-](?={_LETTER})")
_AFTER_TERM = ".,;:!?)]}'\"“”…"


_NO_FILTER = Filter()
_NO_CONDITION = compile_filter(_NO_FILTER)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedQuery:
    """A query text split into plain text and operators.

    A term is one word, or several in quotes.
    """

    text: str
    """The text that is embedded and analysed, without operators, quotes and excluded terms."""
    phrases: tuple[str, ...]
    required: tuple[str, ...]
    excluded: tuple[str, ...]


def parse_operators(text: str) -> ParsedQuery:
    """Parse the operators of a query.

    Any text is valid: what is no operator is a word.
    """
    terms: dict[str, dict[str, None]] = {"": {}, "+": {}, "-": {}}

    def strip_operator(match: re.Match[str]) -> str:
        operator = match["of_phrase"] or match["of_term"] or ""
        words = " ".join((match["phrase"] or match["term"] or "").split())
        term = words.rstrip(_AFTER_TERM) if match["of_term"] else words
        # A phrase constrains the order of its words: quotes around one word only stress it.
        if any(character.isalnum() for character in term) and (operator or " " in term):
            terms[operator][term] = None
        if operator == "-":
            return " "
        return words if match["joined"] is None else f"{words} "

    plain = " ".join(_MARKED.sub(strip_operator, text).split())
    return ParsedQuery(
        # Operators inside a phrase, or left by an excluded term, would be parsed as operators the next time.
        text=_OPERATOR.sub("", plain),
        phrases=tuple(terms[""]),
        required=tuple(terms["+"]),
        excluded=tuple(terms["-"]),
    )


MAX_K = 1000
MAX_OPERATORS = 32
"""Phrases, required and excluded terms of one query together: each is a condition of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """One valid query of one reader, for all stages of a search."""

    text: str
    """As it was sent, without control characters; not blank, of bounded length, encodable."""
    parsed: ParsedQuery
    k: int | None
    """Hits requested; None for the default of the settings that answer."""
    filter: Filter
    tenant: TenantRef
    principals: tuple[str, ...]
    collection: str | None
    """None for all collections of the tenant."""
    subject: str | None
    scope: Mapping[str, Any]
    """Values that every statement binds: tenant, collection and the compiled filter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrieverQuery:
    """One wording of a query, as the retrievers search for it."""

    scope: Mapping[str, Any]
    principals: Sequence[str]
    parsed: ParsedQuery
    texts: Mapping[str, float]
    """Texts of the lexical retriever with their weights: the query 1, its synonyms less."""
    vector: NDArray[np.float32] | None
    """Query embedding of the dense retriever; None if it does not run."""
    lexical: bool
    """Whether the lexical retriever runs."""
    candidates: int
    """Candidates of each retriever."""
    similarity_threshold: float
    """Least cosine of a dense candidate."""
    use_vector_index: bool


def parse_query(
    text: str,
    *,
    tenant: TenantRef,
    principals: Sequence[str],
    collection: str | None = None,
    subject: str | None = None,
    k: int | None = None,
    filter: Filter | None = None,  # noqa: A002 — the name that callers expect
    max_chars: int,
) -> Query:
    """Parse and check a query. Raises RequestError that names what is wrong.

    Control characters become spaces and lone surrogates are removed: neither means anything, and PostgreSQL refuses
    both.

    Args:
        text: The query with its operators.
        tenant: Whose documents are searched.
        principals: Principals of the reader.
        collection: The collection to search; None for all.
        subject: The caller, for the audit log and experiments.
        k: Hits requested; None for the default.
        filter: Conditions on documents.
        max_chars: Longest allowed text, `rag.retrieval.max_question_chars`.
    """
    cleaned = "".join(character if character.isprintable() else " " for character in text)
    cleaned = " ".join(cleaned.encode("utf-8", "ignore").decode().split())
    if not cleaned:
        raise RequestError("the question is empty; ask something")
    if len(cleaned) > max_chars:
        raise RequestError(
            f"the question has {len(cleaned):,} characters and rag.retrieval.max_question_chars allows {max_chars:,}; "
            "shorten it, or ingest long text as a document"
        )
    if k is not None and (isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K):
        raise RequestError(f"k is {k!r}; ask for 1 to {MAX_K} hits")
    conditions = _NO_FILTER if filter is None else filter
    compiled = _NO_CONDITION if filter is None else compile_filter(filter)
    return Query(
        text=cleaned,
        parsed=_parse(cleaned),
        k=k,
        filter=conditions,
        tenant=tenant,
        principals=tuple(principals),
        collection=collection,
        subject=subject,
        scope={"tenant_id": tenant.id, "collection": collection, **compiled},
    )


def _parse(cleaned: str) -> ParsedQuery:
    parsed = parse_operators(cleaned)
    if not parsed.text:
        if parsed.excluded:
            raise RequestError(f"the question {cleaned!r} has only excluded terms; add words to search for")
        raise RequestError("the question is empty; ask something")
    operators = len(parsed.phrases) + len(parsed.required) + len(parsed.excluded)
    if operators > MAX_OPERATORS:
        raise RequestError(
            f"the question has {operators} phrases, required and excluded terms; use at most {MAX_OPERATORS}"
        )
    return parsed
