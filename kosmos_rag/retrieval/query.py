"""Parse queries: their operators, their filter and their limits."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Filter, Operators, QuerySyntax, ResultOptions
from kosmos_rag.parsing.clean import clean
from kosmos_rag.retrieval.filters import compile_filter
from kosmos_rag.retrieval.options import ParsedOptions, parse_options
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.tenants import TenantRef

_SIGN = re.compile(r'[-+"“”]')
"""What an operator has; a query without it has no operators."""
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
_SIGNED = re.compile(rf"(?<!\S)[+-](?:{_QUOTE}[^\"“”]+{_QUOTE}|{_LETTER}\S*)")
_PHRASE = re.compile(rf"(?<![\w+-]){_QUOTE} (?P<phrase>[^\"“”]*) {_QUOTE} (?P<joined>(?=\w|{_QUOTE}))?", re.VERBOSE)
_TOKEN = re.compile(rf"[+-]?{_QUOTE}[^\"“”]*{_QUOTE}\S*|\S+")
_TERM = re.compile(
    rf"""
    (?: [+-]?{_QUOTE}[^"“”]*{_QUOTE}              # quoted words
      | -{_LETTER}(?:[\w'-]*\w)                   # an excluded word: `-p` and `-a.b.c` are options of a command
      | \+{_LETTER}(?:[^\s"“”:=/\\]*[\w+\#])?       # a required word
      | (?P<bare>\w(?:[^\s"“”:=/\\]*[\w+\#])?)     # a word
    ) [,;]?
    """,
    re.VERBOSE,
)
"""A term of a query of operators and terms. Options, paths, ports and assignments of a command line are none."""
_MAX_BARE_TERMS = 6
"""Words of a query of operators and terms. A longer one is taken for a sentence, whatever its language is."""
_FUNCTION_WORDS = frozenset(
    """how what when where which who whom whose why is are was were be been am do does did has have had can could should
    would will may must shall i me my we us our you your he she it its they them their this that these those there the a
    an please
    wie was wer wo wann warum wieso welche welcher welches ist sind war wird werden kann können muss soll hat haben ich
    wir sie der die das den dem ein eine einen einem einer
    comment quoi quand où pourquoi quel quelle quels quelles est sont peut doit je nous vous il elle le la les un une
    des
    cómo qué cuándo dónde por cuál quién es son puede debe hay el los las una unos
    come cosa quando dove perché quale chi è sono può deve lo gli uno
    como quê onde porquê qual quem é são pode deve os as um uma
    hoe wat waar waarom welke wie zijn kan moet de het een""".split()  # noqa: SIM905 — a list of these would be a page
)
"""Words that make a sentence: question words, auxiliary verbs, pronouns and articles."""
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
    operators: Operators


_NO_OPERATORS = Operators()


def parse_operators(text: str, syntax: QuerySyntax = "auto") -> ParsedQuery:
    """Parse the operators of a query.

    Any text is valid: what is no operator is a word. With `auto`, signs are operators only if the whole text consists
    of operators and terms; quoted phrases, which exclude nothing, count in a sentence too. With `plain`, nothing is an
    operator.
    """
    if syntax == "plain":
        return ParsedQuery(text=text, operators=Operators())
    pattern, signed_text = _MARKED, tuple[str, ...]()
    if syntax == "auto" and (signed := _SIGNED.findall(text)) and not _is_keyword_query(text):
        pattern, signed_text = _PHRASE, tuple(dict.fromkeys(signed))
    terms: dict[str, dict[str, None]] = {"": {}, "+": {}, "-": {}}

    def strip_operator(match: re.Match[str]) -> str:
        groups = match.groupdict()
        operator = groups.get("of_phrase") or groups.get("of_term") or ""
        words = " ".join((match["phrase"] or groups.get("term") or "").split())
        term = words.rstrip(_AFTER_TERM) if groups.get("of_term") else words
        # A phrase constrains the order of its words: quotes around one word only stress it.
        if any(character.isalnum() for character in term) and (operator or " " in term):
            terms[operator][term] = None
        if operator == "-":
            return " "
        return words if match["joined"] is None else f"{words} "

    plain = " ".join(pattern.sub(strip_operator, text).split())
    return ParsedQuery(
        # Operators inside a phrase, or left by an excluded term, would be parsed as operators the next time.
        text=plain if signed_text else _OPERATOR.sub("", plain),
        operators=Operators(
            phrases=tuple(terms[""]), required=tuple(terms["+"]), excluded=tuple(terms["-"]), signed_text=signed_text
        ),
    )


def _is_keyword_query(text: str) -> bool:
    """Return whether a text consists of operators and terms.

    A sentence and a command line do not.
    """
    bare = []
    for token in _TOKEN.findall(text):
        term = _TERM.fullmatch(token)
        if term is None:
            return False
        if term["bare"] is not None:
            bare.append(term["bare"].casefold())
    return len(bare) <= _MAX_BARE_TERMS and _FUNCTION_WORDS.isdisjoint(bare)


MAX_K = 1000
SYNTAXES: tuple[str, ...] = get_args(QuerySyntax)
MAX_OPERATORS = 32
"""Phrases, required and excluded terms of one query together: each is a condition of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrieverOptions:
    """What one query sets instead of the settings."""

    semantic_weight: float | None = None
    """Weight of the dense retriever, 0 for none; None for the setting."""
    keyword_weight: float | None = None
    """Weight of the lexical retriever, 0 for none; None for the setting."""
    vector: tuple[float, ...] | None = None
    """Query embedding by the model of the collection, of length one; None to embed the text."""


DEFAULT_RETRIEVERS = RetrieverOptions()


def parse_retriever_options(
    semantic_weight: float | None, keyword_weight: float | None, vector: Sequence[float] | None
) -> RetrieverOptions:
    """Check what a query sets for the retrievers, and normalise its vector.

    Raises RequestError.

    Args:
        semantic_weight: Weight of the dense retriever.
        keyword_weight: Weight of the lexical retriever.
        vector: Query embedding.
    """
    for name, weight in (("semantic_weight", semantic_weight), ("keyword_weight", keyword_weight)):
        if weight is not None and not (_is_number(weight) and 0 <= weight < math.inf):
            raise RequestError(f"{name} is {weight!r}; give a number from 0, 0 for no such retriever")
    if semantic_weight == keyword_weight == 0:
        raise RequestError("semantic_weight and keyword_weight are 0; one of the retrievers must run")
    if vector is None:
        return RetrieverOptions(semantic_weight=semantic_weight, keyword_weight=keyword_weight)
    if semantic_weight == 0:
        raise RequestError("a vector is given and semantic_weight is 0; only the dense retriever searches by it")
    if not isinstance(vector, Sequence | np.ndarray):
        raise RequestError(f"the vector is {vector!r}; give the embedding of a question, a list of numbers")
    values = [float(value) for value in vector if _is_number(value)]
    norm = math.hypot(*values)
    if len(values) != len(vector) or not 0 < norm < math.inf:
        raise RequestError("the vector is not of finite numbers, or has length 0; give the embedding of a question")
    return RetrieverOptions(
        semantic_weight=semantic_weight,
        keyword_weight=keyword_weight,
        vector=tuple(value / norm for value in values),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryRequest:
    """A question with its options, as the caller sent it."""

    text: str
    k: int | None = None
    """Hits requested; None for the setting."""
    filter: Filter | None = None
    syntax: QuerySyntax = "auto"
    options: ResultOptions | None = None
    """Pages, groups, facets and diversity; None for the first hits alone."""
    retrievers: RetrieverOptions = DEFAULT_RETRIEVERS
    today: date | None = None
    """Reference date of relative times; None for the day of the request in UTC."""
    read_your_writes: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """One valid query of one reader, for all stages of a search."""

    text: str
    """As it was sent, without control characters; of bounded length, encodable. Blank only with a vector."""
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
    options: ParsedOptions | None
    """Pages, groups, facets and diversity; None for the first hits alone."""
    retrievers: RetrieverOptions = DEFAULT_RETRIEVERS
    read_your_writes: bool = False
    """Whether the primary answers, and no replica."""
    today: date
    """Reference date of relative times, of validity and of age."""


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
    fuzzy: bool
    """Whether close terms replace words that no chunk contains."""
    candidates: int
    """Candidates of each retriever."""
    similarity_threshold: float
    """Least cosine of a dense candidate."""
    use_vector_index: bool


def clean_question(text: str) -> str:
    """Return a question in one line, without what documents are cleaned of.

    Lone surrogates and the soft hyphens of a copied word are removed, other control characters become spaces.
    """
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in clean(text))
    return " ".join(text.split())


def parse_query(request: QueryRequest, reader: AuditContext, *, max_chars: int) -> Query:
    """Parse and check a query. Raises RequestError that names what is wrong.

    Args:
        max_chars: Longest allowed text, `rag.retrieval.max_question_chars`.
    """
    text, k, retrievers = request.text, request.k, request.retrievers
    if not isinstance(text, str):
        raise RequestError(f"the question is {text!r}; give a text")
    cleaned = clean_question(text)
    if not cleaned and retrievers.vector is None:
        raise RequestError("the question is empty; ask something")
    if len(cleaned) > max_chars:
        raise RequestError(
            f"the question has {len(cleaned):,} characters and rag.retrieval.max_question_chars allows {max_chars:,}; "
            "shorten it, or ingest long text as a document"
        )
    if k is not None and (isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K):
        raise RequestError(f"k is {k!r}; ask for 1 to {MAX_K} hits")
    if request.syntax not in SYNTAXES:
        raise RequestError(f"syntax is {request.syntax!r}; give one of {', '.join(SYNTAXES)}")
    conditions = _NO_FILTER if request.filter is None else request.filter
    compiled = _NO_CONDITION if request.filter is None else compile_filter(request.filter)
    parsed = ParsedQuery(text=cleaned, operators=_NO_OPERATORS)
    if _SIGN.search(cleaned):
        parsed = _parse_signs(cleaned, request.syntax)
    parsed_options = None
    if request.options is not None:
        principals = sorted(set(reader.principals))
        search = (reader.tenant.id, principals, reader.collection, parsed, conditions, retrievers)
        parsed_options = parse_options(request.options, search)
    return Query(
        text=cleaned,
        parsed=parsed,
        k=k,
        filter=conditions,
        tenant=reader.tenant,
        principals=reader.principals,
        collection=reader.collection,
        subject=reader.subject,
        scope={"tenant_id": reader.tenant.id, "collection": reader.collection, **compiled},
        options=parsed_options,
        retrievers=retrievers,
        read_your_writes=request.read_your_writes,
        today=datetime.now(UTC).date() if request.today is None else request.today,
    )


def _parse_signs(cleaned: str, syntax: QuerySyntax) -> ParsedQuery:
    parsed = parse_operators(cleaned, syntax)
    if not parsed.text:
        if parsed.operators.excluded:
            raise RequestError(
                f"the question {cleaned!r} has only excluded terms; add words to search for, or send syntax=plain"
            )
        raise RequestError("the question is empty; ask something")
    operators = parsed.operators
    operator_count = len(operators.phrases) + len(operators.required) + len(operators.excluded)
    if operator_count > MAX_OPERATORS:
        raise RequestError(
            f"the question has {operator_count} phrases, required and excluded terms; use at most {MAX_OPERATORS}"
        )
    return parsed
