"""Whether the passages that an answer cites bear out what it says, sentence by sentence, whoever wrote the answer."""

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kosmos_rag.answering.abstention import REFUSAL
from kosmos_rag.answering.compose import quoted
from kosmos_rag.answering.evidence import cosines
from kosmos_rag.answering.prompt_injection import instruction_in
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.text.sentences import Unit, units
from kosmos_rag.core.text.words import stems
from kosmos_rag.core.types import (
    AnswerSentence,
    CheckedSentence,
    Citation,
    CitationReport,
    ContextPassage,
    QuoteStatus,
    Verdict,
    sha256_of,
)

_LINK = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s)>\]]+|\bwww\.[^\s)>\]]+|!?\[[^\]\n]*\]\([^)\n]*\)", re.IGNORECASE)
_QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”")
_IDENTIFIER = re.compile(r"\w+(?:[._]\w+)*_\w+|\w+\.\w+\.\w+")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,:/-]\d+)*")
_NAME = re.compile(r"(?<=[^\W_])[,;]?\s+((?:[A-Z][\w&-]*)(?:\s+[A-Z][\w&-]*)*)")
# At the beginning of a sentence, or behind signs, a word with a capital letter may be a name as well.
_WORD = re.compile(r"(?<!\w)[^\W_][\w-]*")
_THE_NAME, _THE_WORD = "the name", "the word"
_IN_OTHER_FORMS = {_THE_NAME, _THE_WORD}
# These begin what is said of a thing, and name none.
_OPENING = frozenset({"according", "additionally", "based", "however", "otherwise", "therefore", "thus", "yes"})


def missing_fact(claim: str, evidence: str) -> str | None:
    """Return a sentence about the first fact of the claim that does not stand in the evidence; None where all do."""
    folded = " ".join(evidence.split()).casefold()
    known = set(stems(evidence))
    for kind, fact in _facts(claim):
        # A name may stand in another form: Mondays for Monday.
        if not _stands(fact.casefold(), folded) and not (kind in _IN_OTHER_FORMS and known.issuperset(stems(fact))):
            return f"{kind} {fact!r} does not stand in what it cites"
    return None


def _facts(claim: str) -> Iterator[tuple[str, str]]:
    for kind, pattern in (
        ("the link", _LINK),
        ("the quoted", _QUOTED),
        ("the identifier", _IDENTIFIER),
        ("the number", _NUMBER),
        (_THE_NAME, _NAME),
    ):
        for match in pattern.finditer(claim):
            fact = next((group for group in match.groups() if group), match[0])
            yield kind, " ".join(fact.split())
    for word in _WORD.findall(claim):
        if _could_name(word):
            yield _THE_WORD, word


def _could_name(word: str) -> bool:
    if word.casefold() in _OPENING:
        return False
    return word != word.lower() or (any(map(str.isdigit, word)) and any(map(str.isalpha, word)))


def _stands(fact: str, evidence: str) -> bool:
    """Whether the fact is there as a whole: 5 does not stand in 15 nor in 5.2."""
    return re.search(rf"(?<!\w)(?<!\d[.,:]){re.escape(fact)}(?!\w|[.,:]\d)", evidence) is not None


# Set by hand; `make bench-answers` reports how they judge the true and the altered claims of benchmarks/claims.yaml.
MIN_OVERLAP = 0.5
MIN_SIMILARITY = 0.5
_JOINTS = " \t\n,;."
_LINE = re.compile(r"\S[^\n]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Claim:
    text: str
    markers: tuple[int, ...]


def check_citations(
    text: str, passages: Sequence[ContextPassage], *, embedder: Embedder, citation_format: str
) -> CitationReport:
    """Check an answer that cites passages by markers of this format, as `rag.context.citation_format` has it.

    A marker belongs to the sentence before it, or to the one it begins. A refusal claims nothing and has no sentences
    in the report. What cites a document that speaks to a language model is not supported. Raises ModelUnavailable.
    """
    checker = _Checker(passages, embedder)
    said = [claim for claim in _claims(text, _pattern(citation_format)) if not _refuses(claim.text)]
    return CitationReport(sentences=tuple(checker.checked(claim) for claim in said))


def is_refusal(text: str, citation_format: str) -> bool:
    """Whether an answer says the refusal sentence, and nothing beside it."""
    said = _claims(text, _pattern(citation_format))
    return bool(said) and all(_refuses(claim.text) for claim in said)


def distrusted(passages: Sequence[ContextPassage]) -> dict[uuid.UUID, str]:
    """Return the documents of which a passage speaks to a language model, with the words by which it does.

    What such a document says of itself may be what it wants to be said, in whichever of its passages.
    """
    found: dict[uuid.UUID, str] = {}
    for passage in passages:
        cited = passage.citation
        words = instruction_in("\n".join((cited.title, *cited.section, passage.text)))
        if words is not None:
            found.setdefault(cited.document_id, words)
    return found


def _refuses(text: str) -> bool:
    return _bare(text) == _bare(REFUSAL)


def _bare(text: str) -> str:
    return text.replace("\u2019", "'").strip(" \n\"'*_.`").casefold()


def _pattern(citation_format: str) -> re.Pattern[str]:
    before, after = citation_format.format(index="\0").split("\0", 1)
    return re.compile(rf"{re.escape(before)}(\d{{1,6}}){re.escape(after)}")


def _claims(text: str, marker: re.Pattern[str]) -> list[_Claim]:
    claims: list[_Claim] = []
    before = 0
    for start, end, is_code in _stretches(text):
        led, rest = _leading(text[start:end], marker)
        # After a sentence in its paragraph, or alone on its line, a marker is of what stands before it.
        if led and claims and ("\n\n" not in text[before:start] or not rest):
            claims[-1] = _Claim(text=claims[-1].text, markers=claims[-1].markers + led)
            led = ()
        if rest:
            said = marker.sub("", rest)
            said = said.strip() if is_code else " ".join(said.split())
            claims.append(_Claim(text=said, markers=led + _numbers(rest, marker)))
        before = end
    return claims


def _stretches(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield start and end of all that can be read, and whether it is code: units, and the lines that are of none.

    What a document's heading names stands below it; in an answer, a heading or the head of a table can say anything.
    """
    before = 0
    for unit in units(text):
        yield from _lines(text, before, unit.start)
        yield unit.start, unit.end, unit.kind == "code"
        before = unit.end
    yield from _lines(text, before, len(text))


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    return ((*line.span(), False) for line in _LINE.finditer(text, start, end))


def _leading(text: str, marker: re.Pattern[str]) -> tuple[tuple[int, ...], str]:
    """Split the markers at the beginning of a text from the rest of it."""
    found: list[int] = []
    rest = text.lstrip(_JOINTS)
    while match := marker.match(rest):
        found.append(int(match[1]))
        rest = rest[match.end() :].lstrip(_JOINTS)
    if not re.search(r"\w", marker.sub("", rest)):
        return (*found, *_numbers(rest, marker)), ""
    return (tuple(found), rest) if found else ((), text)


def _numbers(text: str, marker: re.Pattern[str]) -> tuple[int, ...]:
    return tuple(int(number) for number in marker.findall(text))


class _Checker:
    """Checks claims against passages, whose units are embedded once."""

    def __init__(self, passages: Sequence[ContextPassage], embedder: Embedder) -> None:
        self._by_index = {passage.citation.index: passage for passage in passages}
        self._distrusted = distrusted(passages)
        self._embedder = embedder
        self._units: dict[int, tuple[list[Unit], Vectors]] = {}

    def checked(self, claim: _Claim) -> CheckedSentence:
        unknown = [number for number in claim.markers if number not in self._by_index]
        if unknown:
            return _verdict(claim, "unresolved", f"there is no passage {unknown[0]}")
        if not claim.markers:
            return _verdict(claim, "uncited", "it cites nothing")
        cited = [self._by_index[number] for number in dict.fromkeys(claim.markers)]
        evidence = "\n\n".join("\n".join((*passage.citation.section, passage.text)) for passage in cited)
        overlap = _overlap(claim.text, evidence)
        quotes = self._most_similar(claim.text, cited)
        similarity = max((quote.score for quote in quotes), default=0.0)
        reason = self._speaking(cited) or missing_fact(claim.text, evidence)
        if reason is None and overlap < MIN_OVERLAP:
            reason = f"{overlap:.0%} of its words stand in what it cites"
        if reason is None and similarity < MIN_SIMILARITY:
            reason = f"nothing in what it cites says the like (similarity {similarity:.2f})"
        if reason is not None:
            return _verdict(claim, "unsupported", reason, overlap, similarity)
        borne_out = tuple(quote for quote in quotes if quote.score >= MIN_SIMILARITY)
        return _verdict(claim, "supported", None, overlap, similarity, borne_out)

    def _speaking(self, cited: Sequence[ContextPassage]) -> str | None:
        for passage in cited:
            if words := self._distrusted.get(passage.citation.document_id):
                return f"the document of passage {passage.citation.index} speaks to a language model ({words!r})"
        return None

    def _most_similar(self, claim: str, cited: Sequence[ContextPassage]) -> list[AnswerSentence]:
        """Return the unit of each passage that is most like the claim, with its similarity as score."""
        vector = self._embedder.embed([claim])[0]
        found = []
        for passage in cited:
            texts, vectors = self._units_of(passage)
            if texts:
                likeness = cosines(vectors, vector)
                best = int(likeness.argmax())
                found.append(quoted(passage, texts[best], float(likeness[best])))
        return found

    def _units_of(self, passage: ContextPassage) -> tuple[list[Unit], Vectors]:
        index = passage.citation.index
        if index not in self._units:
            found = list(units(passage.text))
            self._units[index] = (found, self._embedder.embed([unit.text for unit in found]))
        return self._units[index]


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


def _overlap(claim: str, evidence: str) -> float:
    words = set(stems(claim))
    return len(words & set(stems(evidence))) / len(words) if words else 0.0


def quote_status(citation: Citation, quote: str, text: str) -> QuoteStatus:
    """Tell what became of a cited quote in a version of its document, of which `text` is the whole text.

    Raises RequestError where the quote is not the one that was cited.
    """
    if sha256_of(quote) != citation.quote_sha256:
        raise RequestError(
            f"the quote {quote[:40]!r} is not the one that {citation.marker} cites: give the cited text, unchanged"
        )
    places = _places(quote, text)
    if not places:
        return QuoteStatus(state="gone", start=None, end=None, copies=0)
    start = min(places, key=lambda place: abs(place - citation.start))
    return QuoteStatus(
        state="unchanged" if start == citation.start else "moved",
        start=start,
        end=start + len(quote),
        copies=len(places),
    )


def _places(quote: str, text: str) -> list[int]:
    places: list[int] = []
    place = text.find(quote)
    while place >= 0:
        places.append(place)
        place = text.find(quote, place + len(quote))
    return places
