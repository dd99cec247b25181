"""Numbers with their units, and negations, of a claim that is checked against its evidence."""

import re
from pathlib import Path

_FOLDER = Path(__file__).parent
_UNITS = {
    word: unit
    for line in (_FOLDER / "units_of_measure.txt").read_text(encoding="utf-8").splitlines()
    for unit, _, words in [line.partition(": ")]
    for word in words.split()
}
"""Units of measure by their words, of English and German."""
_NEGATION_LINES = dict(
    line.split(": ", 1) for line in (_FOLDER / "negations.txt").read_text(encoding="utf-8").splitlines()
)
_COMPARISONS = tuple(_NEGATION_LINES.pop("comparison").split(", "))
"""Phrases with a word of negation that negate nothing."""
_NEGATIONS = frozenset(word for words in _NEGATION_LINES.values() for word in words.split())
_QUANTITY = re.compile(r"(?<![\w.,])(\d+(?:[.,]\d+)*)[ \u00a0-]?(%|€|\$|[^\W\d_]+(?:[ -]points?)?)")
_MONEY = re.compile(r"([€$])[ \u00a0]?(\d+(?:[.,]\d+)*)")
_WORD = re.compile(r"[^\W\d_]+(?:'t\b)?")


def find_other_unit(claim: str, evidence: str) -> str | None:
    """Return a quantity of the claim whose number has only other units in the evidence.

    The result is None where there is none. A number that has no unit there, as in a table, may have any.
    """
    stated = find_quantities(evidence)
    for number, unit in sorted(find_quantities(claim)):
        units = {other for same, other in stated if same == number}
        if units and unit not in units:
            return f"{number} {unit}"
    return None


def is_negated(text: str) -> bool:
    """Return whether a text has a word of negation, of English or German."""
    folded = " ".join(text.casefold().replace("\u2019", "'").split())
    for phrase in _COMPARISONS:
        folded = folded.replace(phrase, " ")
    words = _WORD.findall(folded)
    return any(word in _NEGATIONS or word.endswith("n't") for word in words)


def find_quantities(text: str) -> set[tuple[str, str]]:
    """Return the numbers of a text that have a unit of measure, with it."""
    pairs = [(number, word) for number, word in _QUANTITY.findall(text)]
    pairs += [(number, sign) for sign, number in _MONEY.findall(text)]
    quantities = ((number, _UNITS.get(re.sub(r" (?=points?$)", "-", word.casefold()))) for number, word in pairs)
    return {(number, unit) for number, unit in quantities if unit is not None}
