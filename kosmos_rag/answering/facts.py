"""What a claim may not make up: what can be looked up must stand in its evidence.

That is: addresses, quoted words, identifiers, numbers, names, and words with a capital letter or a digit."""

import re
from collections.abc import Iterator

from kosmos_rag.answering.words import stems

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
