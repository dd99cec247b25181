"""Check, sentence by sentence, whether the cited passages support an answer."""

import itertools
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kosmos_rag.answering.abstention import REFUSAL
from kosmos_rag.answering.claims import StatedNumbers, find_contradiction, find_negated_word, is_negated
from kosmos_rag.answering.compose import cite_unit
from kosmos_rag.answering.evidence import passage_units
from kosmos_rag.answering.prompt_injection import find_instruction
from kosmos_rag.answering.scorers import cosines
from kosmos_rag.answering.units import Unit, units
from kosmos_rag.answering.words import stems
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.types import (
    AnswerSentence,
    CheckedSentence,
    Citation,
    CitationReport,
    ContextPassage,
    QuoteStatus,
    Verdict,
    hash_text,
)

_LINK = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s)>\]]+|\bwww\.[^\s)>\]]+|!?\[[^\]\n]*\]\([^)\n]*\)", re.IGNORECASE)
_QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”")
_IDENTIFIER = re.compile(r"\w+(?:[._]\w+)*_\w+|\w+\.\w+\.\w+")
_NAME = re.compile(r"(?<=[^\W_])[,;]?\s+((?:[A-Z][\w&-]*)(?:\s+[A-Z][\w&-]*)*)")
# A capitalised word may be a name at the start of a sentence and after punctuation too.
_WORD = re.compile(r"(?<!\w)[^\W_][\w-]*")
# Capitalised only because they start a sentence.
_OPENING = frozenset(
    {
        *("according", "additionally", "based", "however", "otherwise", "several", "therefore", "thus", "various"),
        *("yes", "mehrere", "verschiedene"),
    }
)


def missing_fact(claim: str, evidence: str, stated: StatedNumbers) -> str | None:
    """Return a message about the first fact that the evidence lacks.

    The result is None if it contains all facts of the claim.

    Args:
        stated: The numbers of the evidence.
    """
    kind, fact = next(_find_missing_facts(claim, evidence, stated), (None, ""))
    return None if kind is None else f"{kind} {fact!r} is not in the cited passages"


def _find_missing_facts(claim: str, evidence: str, stated: StatedNumbers) -> Iterator[tuple[str, str]]:
    folded = " ".join(evidence.split()).casefold()
    for kind, pattern in (("the link", _LINK), ("the quoted", _QUOTED), ("the identifier", _IDENTIFIER)):
        for match in pattern.finditer(claim):
            fact = " ".join(next((group for group in match.groups() if group), match[0]).split())
            if not _contains_token(fact.casefold(), folded):
                yield kind, fact
    if (number := stated.find_missing(claim)) is not None:
        yield "the number", number
    evidence_stems = set(stems(evidence, stated.language))
    for kind, fact in _find_names(claim):
        # Names and words may be inflected: Mondays for Monday.
        if not _contains_token(fact.casefold(), folded) and not evidence_stems.issuperset(stems(fact, stated.language)):
            yield kind, fact


def _find_names(claim: str) -> Iterator[tuple[str, str]]:
    for match in _NAME.finditer(claim):
        yield "the name", " ".join(match[1].split())
    for word in _WORD.findall(claim):
        if _could_name(word):
            yield "the word", word


def _could_name(word: str) -> bool:
    if word.casefold() in _OPENING:
        return False
    return word != word.lower() or (any(map(str.isdigit, word)) and any(map(str.isalpha, word)))


def _contains_token(fact: str, evidence: str) -> bool:
    """Return whether the fact occurs as a whole token.

    5 is not in 15 nor in 5.2.
    """
    return re.search(rf"(?<!\w)(?<!\d[.,:]){re.escape(fact)}(?!\w|[.,:]\d)", evidence) is not None


# Set by hand; `make bench-answers` measures them on the true and altered claims of benchmarks/claims.yaml.
MIN_OVERLAP = 0.5
MIN_SIMILARITY = 0.5
_JOINTS = " \t\n,;."
_HEADING = re.compile(r"#{1,6}[ \t]+[^\n]*|\*\*[^*\n]+\*\*:?")
"""A heading of Markdown, or a line in bold."""
_SENTENCE_END = re.compile(r"[.!\u2026\u3002\uff01][\s*:]*$")
_QUESTION = re.compile(
    r"[#*\s]*(?:how|what|when|where|which|who|why|wann|warum|was|welche[nrs]?|wer|wie|wo)\b|.*[?\uff1f][\s*:]*$",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"\b(?:are|can|do|does|has|have|is|may|must|shall|should|was|were|will"
    r"|darf|d\u00fcrfen|hat|haben|ist|kann|k\u00f6nnen|muss|m\u00fcssen|sind|soll|werden|wird)\b",
    re.IGNORECASE,
)
"""Verbs that make a statement of a heading: "Refunds are allowed"."""
_HEADING_WORDS = frozenset(
    word
    for line in (Path(__file__).parent / "heading_words.txt").read_text(encoding="utf-8").splitlines()
    for word in line.partition(": ")[2].split()
)
"""Words of headings that say nothing, of English and German."""
_LINE = re.compile(r"\S[^\n]*")
_SPACES = re.compile(r"[^\S\u00a0\u202f]+")
"""All but those that group the digits of a number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Claim:
    text: str
    markers: tuple[int, ...]
    is_heading: bool = False


def check_citations(
    text: str, passages: Sequence[ContextPassage], *, embedder: Embedder, citation_format: str
) -> CitationReport:
    """Check whether the cited passages support an answer.

    A marker belongs to the sentence before it, or to the sentence that it starts. A refusal has no sentences in the
    report. A sentence that cites a document with instructions to a language model is not supported.

    Args:
        text: The answer, with citation markers.
        passages: The passages that markers refer to by index.
        embedder: The model that compares sentences with passages.
        citation_format: The format of a marker, as in `rag.context.citation_format`.

    Raises ModelUnavailable.
    """
    checker = _Checker(passages, embedder)
    claims = [claim for claim in _claims(text, _pattern(citation_format)) if not _is_refusal_text(claim.text)]
    return CitationReport(
        sentences=tuple(
            checker.check_heading(claim, _markers_below(claims[at:]))
            if claim.is_heading and not claim.markers
            else checker.check(claim)
            for at, claim in enumerate(claims)
        )
    )


def is_refusal(text: str, citation_format: str) -> bool:
    """Return whether an answer consists of the refusal sentence alone."""
    claims = _claims(text, _pattern(citation_format))
    return bool(claims) and all(_is_refusal_text(claim.text) for claim in claims)


def find_markers(text: str, citation_format: str) -> frozenset[int]:
    """Return the numbers that an answer cites."""
    return frozenset(_numbers(text, _pattern(citation_format)))


def suspicious_documents(passages: Sequence[ContextPassage]) -> dict[uuid.UUID, str]:
    """Return the documents with instructions to a language model.

    Each with the words that show it. One such passage makes every passage of its document suspicious.
    """
    suspicious: dict[uuid.UUID, str] = {}
    for passage in passages:
        cited = passage.citation
        words = find_instruction("\n".join((cited.title, *cited.section, *cited.table_context, passage.text)))
        if words is not None:
            suspicious.setdefault(cited.document_id, words)
    return suspicious


def _is_refusal_text(text: str) -> bool:
    return _normalize(text) == _normalize(REFUSAL)


def _normalize(text: str) -> str:
    return text.replace("\u2019", "'").strip(" \n\"'*_.`").casefold()


def _pattern(citation_format: str) -> re.Pattern[str]:
    before, after = citation_format.format(index="\0").split("\0", 1)
    return re.compile(rf"{re.escape(before)}(\d{{1,6}}){re.escape(after)}")


def _claims(text: str, marker: re.Pattern[str]) -> list[_Claim]:
    claims: list[_Claim] = []
    before = 0
    for start, end, is_code in _segments(text):
        leading, body = _split_leading_markers(text[start:end], marker)
        # A marker after a sentence of its paragraph, or alone on its line, belongs to the text before it.
        if leading and claims and ("\n\n" not in text[before:start] or not body):
            claims[-1] = replace(claims[-1], markers=claims[-1].markers + leading)
            leading = ()
        if body:
            claim_text = marker.sub("", body)
            claim_text = claim_text.strip() if is_code else _SPACES.sub(" ", claim_text).strip()
            claims.append(
                _Claim(text=claim_text, markers=leading + _numbers(body, marker), is_heading=_is_heading(claim_text))
            )
        before = end
    return claims


def _is_heading(text: str) -> bool:
    """Return whether a text is a heading, and no sentence or negation.

    Language models write conclusions in bold.
    """
    if _HEADING.fullmatch(text) is None or _SENTENCE_END.search(text):
        return False
    return _QUESTION.match(text) is not None or not is_negated(text)


def _markers_below(claims: Sequence[_Claim]) -> tuple[int, ...]:
    """Return the markers between the first claim, a heading, and the next heading."""
    below = itertools.takewhile(lambda claim: not claim.is_heading, claims[1:])
    return tuple(dict.fromkeys(marker for claim in below for marker in claim.markers))


def _segments(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield start, end and whether it is code, for units and lines.

    Lines outside of units (headings, table headers) are checked too: in an answer they can claim anything.
    """
    before = 0
    for unit in units(text):
        yield from _lines(text, before, unit.start)
        yield unit.start, unit.end, unit.kind == "code"
        before = unit.end
    yield from _lines(text, before, len(text))


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    return ((*line.span(), False) for line in _LINE.finditer(text, start, end))


def _split_leading_markers(text: str, marker: re.Pattern[str]) -> tuple[tuple[int, ...], str]:
    """Split leading markers from the remaining text."""
    markers: list[int] = []
    remaining = text.lstrip(_JOINTS)
    while match := marker.match(remaining):
        markers.append(int(match[1]))
        remaining = remaining[match.end() :].lstrip(_JOINTS)
    if not re.search(r"\w", marker.sub("", remaining)):
        return (*markers, *_numbers(remaining, marker)), ""
    return (tuple(markers), remaining) if markers else ((), text)


def _numbers(text: str, marker: re.Pattern[str]) -> tuple[int, ...]:
    return tuple(int(number) for number in marker.findall(text))


class _Checker:
    """Checks claims against passages; the units of a passage are embedded once."""

    def __init__(self, passages: Sequence[ContextPassage], embedder: Embedder) -> None:
        self._by_index = {passage.citation.index: passage for passage in passages}
        self._suspicious = suspicious_documents(passages)
        self._embedder = embedder
        self._units: dict[int, tuple[list[Unit], Vectors]] = {}

    def check(self, claim: _Claim) -> CheckedSentence:
        unknown = [number for number in claim.markers if number not in self._by_index]
        if unknown:
            return _verdict(claim, "unresolved", f"there is no passage {unknown[0]}")
        if not claim.markers:
            return _verdict(claim, "uncited", "it has no citation")
        cited = [self._by_index[number] for number in dict.fromkeys(claim.markers)]
        evidence = _join_evidence(cited)
        quotes, similar = self._compare(claim.text, cited)
        similarity = max((quote.score for quote in quotes), default=0.0)
        stated = StatedNumbers(evidence)
        overlap = _overlap(claim.text, evidence, stated.language)
        reason = (
            self._suspicious_reason(cited)
            or missing_fact(claim.text, evidence, stated)
            or _compare_numbers(claim.text, similar, stated)
        )
        if reason is None and overlap < MIN_OVERLAP:
            reason = f"{overlap:.0%} of its words are in the cited passages"
        if reason is None and similarity < MIN_SIMILARITY:
            reason = f"no cited passage says anything similar (similarity {similarity:.2f})"
        supported = tuple(quote for quote in quotes if quote.score >= MIN_SIMILARITY)
        if reason is None:
            reason = _find_contradiction(claim.text, supported) or _explain_negated_word(claim.text, evidence)
        if reason is not None:
            return _verdict(claim, "unsupported", reason, overlap, similarity)
        return _verdict(claim, "supported", None, overlap, similarity, supported)

    def check_heading(self, claim: _Claim, below: Sequence[int]) -> CheckedSentence:
        """Check a heading without a citation by what is cited below it.

        It is supported where the cited passages have its facts, and at least half of its words, and do not contradict
        it, or where its words name a part of any text, such as "Summary". It needs no similar unit.
        """
        cited = [self._by_index[number] for number in below if number in self._by_index]
        evidence = _join_evidence(cited)
        stated = StatedNumbers(evidence)
        overlap = _overlap(claim.text, evidence, stated.language)
        is_general = _HEADING_WORDS.issuperset(re.findall(r"\w+", claim.text.casefold()))
        is_supported = is_general or (
            overlap >= MIN_OVERLAP
            and not self._suspicious_reason(cited)
            and missing_fact(claim.text, evidence, stated) is None
            and not self._contradict_heading(claim.text, cited)
        )
        return _verdict(claim, "supported", None, overlap) if is_supported else self.check(claim)

    def _contradict_heading(self, heading: str, cited: Sequence[ContextPassage]) -> bool:
        if _QUESTION.match(heading):
            return False
        similar = [quote for quote in self._compare(heading, cited)[0] if quote.score >= MIN_SIMILARITY]
        # "Refunds" may be above what is not refunded.
        compares_negation = _VERB.search(heading) is not None
        return _find_contradiction(heading, similar, compares_negation=compares_negation) is not None

    def _suspicious_reason(self, cited: Sequence[ContextPassage]) -> str | None:
        for passage in cited:
            if words := self._suspicious.get(passage.citation.document_id):
                index = passage.citation.index
                return f"the document of passage {index} contains instructions to a language model ({words!r})"
        return None

    def _compare(self, claim: str, cited: Sequence[ContextPassage]) -> tuple[list[AnswerSentence], str]:
        """Return the most similar unit of each passage, and the text of all similar ones.

        The score of a unit is its cosine similarity. A similar text has its headings; without similar units it is
        empty.
        """
        vector = self._embedder.embed([claim])[0]
        quotes, similar = [], []
        for passage in cited:
            texts, vectors = self._get_units(passage)
            if texts:
                similarities = cosines(vectors, vector)
                best = int(similarities.argmax())
                quotes.append(cite_unit(passage, texts[best], float(similarities[best])))
                near = [unit.text for unit, at in zip(texts, similarities, strict=True) if at >= MIN_SIMILARITY]
                similar += [*passage.citation.section, *passage.citation.table_context, *near] if near else []
        return quotes, "\n".join(similar)

    def _get_units(self, passage: ContextPassage) -> tuple[list[Unit], Vectors]:
        index = passage.citation.index
        if index not in self._units:
            cited_units = list(passage_units(passage))
            self._units[index] = (cited_units, self._embedder.embed([unit.text for unit in cited_units]))
        return self._units[index]


def _compare_numbers(claim: str, similar: str, stated: StatedNumbers) -> str | None:
    """Return a message about a number that the evidence has in another unit, bound or place."""
    if (quantity := stated.find_other_unit(claim)) is not None:
        return f"{quantity!r} has another unit in the cited passages"
    if (bound := stated.find_other_bound(claim)) is not None:
        return f"{bound!r} is the opposite bound of the cited passages"
    if similar and (number := StatedNumbers(similar, stated.language).find_missing(claim)):
        return f"the number {number!r} is not where the cited passages say something similar"
    return None


def _explain_negated_word(claim: str, evidence: str) -> str | None:
    word = find_negated_word(claim, evidence)
    return None if word is None else f"the cited passages negate {word!r}"


def _join_evidence(cited: Sequence[ContextPassage]) -> str:
    """Return the texts of passages, each with its headings."""
    return "\n\n".join(
        "\n".join((*passage.citation.section, *passage.citation.table_context, passage.text)) for passage in cited
    )


def _find_contradiction(claim: str, quotes: Sequence[AnswerSentence], *, compares_negation: bool = True) -> str | None:
    """Return the first message if all quotes contradict a claim."""
    reasons = [find_contradiction(claim, quote.text, compares_negation=compares_negation) for quote in quotes]
    return reasons[0] if reasons and None not in reasons else None


def _verdict(
    claim: _Claim,
    verdict: Verdict,
    reason: str | None,
    overlap: float = 0.0,
    similarity: float = 0.0,
    quotes: tuple[AnswerSentence, ...] = (),
) -> CheckedSentence:
    return CheckedSentence(
        text=claim.text,
        markers=claim.markers,
        verdict=verdict,
        reason=reason,
        overlap=overlap,
        similarity=similarity,
        quotes=quotes,
    )


def _overlap(claim: str, evidence: str, language: str) -> float:
    words = set(stems(claim, language))
    return len(words & set(stems(evidence, language))) / len(words) if words else 0.0


def quote_status(citation: Citation, quote: str, text: str) -> QuoteStatus:
    """Find a cited quote in a version of its document.

    Args:
        quote: The quoted text, unchanged.
        text: The whole text of the version.

    Raises RequestError where the quote is not the cited one.
    """
    if hash_text(quote) != citation.quote_sha256:
        raise RequestError(
            f"the quote {quote[:40]!r} is not the one that {citation.marker} cites: give the cited text, unchanged"
        )
    positions = _find_all(quote, text)
    if not positions:
        return QuoteStatus(state="gone", start=None, end=None, copies=0)
    start = min(positions, key=lambda position: abs(position - citation.start))
    return QuoteStatus(
        state="unchanged" if start == citation.start else "moved",
        start=start,
        end=start + len(quote),
        copies=len(positions),
    )


def _find_all(quote: str, text: str) -> list[int]:
    positions: list[int] = []
    position = text.find(quote)
    while position >= 0:
        positions.append(position)
        position = text.find(quote, position + len(quote))
    return positions
