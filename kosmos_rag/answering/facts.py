"""What a claim may not make up: addresses, quoted words, identifiers, numbers and names must stand in its evidence."""

import re
from collections.abc import Iterator

from kosmos_rag.answering.words import stems

_LINK = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s)>\]]+|\bwww\.[^\s)>\]]+|!?\[[^\]\n]*\]\([^)\n]*\)", re.IGNORECASE)
_QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”")
_IDENTIFIER = re.compile(r"\w+(?:[._]\w+)*_\w+|\w+\.\w+\.\w+")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,:/-]\d+)*")
_NAME = re.compile(r"(?<=[^\W_])[,;]?\s+((?:[A-Z][\w&-]*)(?:\s+[A-Z][\w&-]*)*)")
_THE_NAME = "the name"


def missing_fact(claim: str, evidence: str) -> str | None:
    """Return a sentence about the first fact of the claim that does not stand in the evidence; None where all do."""
    folded = " ".join(evidence.split()).casefold()
    known = set(stems(evidence))
    for kind, fact in _facts(claim):
        # A name may stand in another form: Mondays for Monday.
        if not _stands(fact.casefold(), folded) and not (kind == _THE_NAME and known.issuperset(stems(fact))):
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


def _stands(fact: str, evidence: str) -> bool:
    """Whether the fact is there as a whole: 5 does not stand in 15 nor in 5.2."""
    return re.search(rf"(?<!\w)(?<!\d[.,:]){re.escape(fact)}(?!\w|[.,:]\d)", evidence) is not None
