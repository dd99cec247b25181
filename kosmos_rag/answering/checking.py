"""Whether the passages that an answer cites bear out what it says, sentence by sentence, whoever wrote the answer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kosmos_rag.answering.abstaining import REFUSAL
from kosmos_rag.answering.evidence import cosines
from kosmos_rag.answering.facts import missing_fact
from kosmos_rag.answering.units import Unit, units
from kosmos_rag.answering.words import stems
from kosmos_rag.ports import Embedder
from kosmos_rag.records import CheckedSentence, CitationReport, ContextPassage, Verdict

# Set by hand; `make bench-answers` reports how they judge the true and the altered claims of benchmarks/claims.yaml.
MIN_OVERLAP = 0.5
MIN_SIMILARITY = 0.5
_JOINTS = " \t\n,;."


@dataclass(frozen=True, kw_only=True, slots=True)
class _Claim:
    text: str
    markers: tuple[int, ...]


def check_citations(
    text: str, passages: Sequence[ContextPassage], *, embedder: Embedder, citation_format: str
) -> CitationReport:
    """Check an answer that cites passages by markers of this format, as `rag.context.citation_format` has it.

    A marker belongs to the sentence before it, or to the one it begins. A refusal claims nothing and has no sentences
    in the report. Raises ModelUnavailable.
    """
    by_index = {passage.citation.index: passage for passage in passages}
    said = [claim for claim in _claims(text, _pattern(citation_format)) if claim.text != REFUSAL]
    return CitationReport(sentences=tuple(_checked(claim, by_index, embedder) for claim in said))


def _pattern(citation_format: str) -> re.Pattern[str]:
    before, after = citation_format.format(index="\0").split("\0", 1)
    return re.compile(rf"{re.escape(before)}(\d{{1,6}}){re.escape(after)}")


def _claims(text: str, marker: re.Pattern[str]) -> list[_Claim]:
    claims: list[_Claim] = []
    end = 0
    for unit in units(text):
        led, rest = _leading(unit.text, marker)
        # After a sentence in its paragraph, or alone on its line, a marker is of what stands before it.
        if led and claims and ("\n\n" not in text[end : unit.start] or not rest):
            claims[-1] = _Claim(text=claims[-1].text, markers=claims[-1].markers + led)
            led = ()
        if rest:
            claims.append(_Claim(text=_without(unit, rest, marker), markers=led + _numbers(rest, marker)))
        end = unit.end
    return claims


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


def _without(unit: Unit, text: str, marker: re.Pattern[str]) -> str:
    bare = marker.sub("", text)
    return bare.strip() if unit.kind == "code" else " ".join(bare.split())


def _checked(claim: _Claim, by_index: dict[int, ContextPassage], embedder: Embedder) -> CheckedSentence:
    unknown = [number for number in claim.markers if number not in by_index]
    if unknown:
        return _verdict(claim, "unresolved", f"there is no passage {unknown[0]}")
    if not claim.markers:
        return _verdict(claim, "uncited", "it cites nothing")
    cited = [by_index[number] for number in dict.fromkeys(claim.markers)]
    evidence = "\n\n".join("\n".join((*passage.citation.section, passage.text)) for passage in cited)
    overlap = _overlap(claim.text, evidence)
    similarity = _similarity(claim.text, cited, embedder)
    reason = missing_fact(claim.text, evidence)
    if reason is None and overlap < MIN_OVERLAP:
        reason = f"{overlap:.0%} of its words stand in what it cites"
    if reason is None and similarity < MIN_SIMILARITY:
        reason = f"nothing in what it cites says the like (similarity {similarity:.2f})"
    return _verdict(claim, "supported" if reason is None else "unsupported", reason, overlap, similarity)


def _verdict(
    claim: _Claim,
    verdict: Verdict,
    reason: str | None,
    overlap: float = 0.0,
    similarity: float = 0.0,
) -> CheckedSentence:
    return CheckedSentence(
        text=claim.text,
        markers=claim.markers,
        verdict=verdict,
        reason=reason,
        overlap=overlap,
        similarity=similarity,
    )


def _overlap(claim: str, evidence: str) -> float:
    words = set(stems(claim))
    return len(words & set(stems(evidence))) / len(words) if words else 0.0


def _similarity(claim: str, cited: Sequence[ContextPassage], embedder: Embedder) -> float:
    texts = [unit.text for passage in cited for unit in units(passage.text)]
    if not texts:
        return 0.0
    return float(cosines(embedder.embed(texts), embedder.embed([claim])[0]).max())
