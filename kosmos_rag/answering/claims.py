"""Numbers with their units, and negations, of a claim that is checked against its evidence."""

import re
from pathlib import Path

_FOLDER = Path(__file__).parent


def _read_words(name: str) -> dict[str, str]:
    """Return what each word of a file means: `day: day days tag` a line."""
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return {word: meaning for line in lines for meaning, _, words in [line.partition(": ")] for word in words.split()}


_UNITS = _read_words("units_of_measure.txt")
"""Units of measure by their words, of English and German."""
_SCALES = frozenset({"thousand", "million", "billion"})
"""Those that may come before another one: 3 million euros."""
_NUMBER_WORDS = _read_words("number_words.txt")
"""Numbers by their words, of English, German and Spanish."""
_NEGATION_LINES = dict(
    line.split(": ", 1) for line in (_FOLDER / "negations.txt").read_text(encoding="utf-8").splitlines()
)
_COMPARISONS = tuple(_NEGATION_LINES.pop("comparison").split(", "))
"""Phrases with a word of negation that negate nothing."""
_NEGATIONS = frozenset(word for words in _NEGATION_LINES.values() for word in words.split())
_DIGITS = r"(?<![\w.,])\d+(?:[.,:\u00a0\u202f'\u2019]\d+)*"
_WRITTEN_OUT = rf"(?<![\w-])(?:{'|'.join(_NUMBER_WORDS)})(?![\w-])"
NUMBER = re.compile(rf"(?<![\w.])\d{{4}}-\d\d-\d\d(?!\d)|{_DIGITS}|{_WRITTEN_OUT}", re.IGNORECASE)
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:[.,\u00a0\u202f'\u2019]\d{3})+(?!\d)")
"""1,850 and 1.850 are the same number, in English and German."""
_LEADING_ZERO = re.compile(r"(?<![\d.])0+(?=\d)")
_UNIT = r"%|€|\$|[^\W\d_]+(?:[ -](?:points?|punkte?n?)\b)?"
_QUANTITY = re.compile(rf"({_DIGITS}|{_WRITTEN_OUT})[ \u00a0-]?({_UNIT})(?:[ \u00a0]({_UNIT}))?", re.IGNORECASE)
_MONEY = re.compile(rf"([€$])[ \u00a0]?({_DIGITS})")
_WORD = re.compile(r"[^\W\d_]+(?:'t\b)?")


def find_missing_number(claim: str, evidence: str) -> str | None:
    """Return a number of the claim that the evidence lacks, as the claim has it.

    The result is None where there is none. 1,850 is 1850, 02:30 is 2:30, and three is 3.
    """
    stated = {_normalize(number) for number in NUMBER.findall(evidence)}
    stated |= {_normalize(part) for number in stated for part in number.split("-")}
    return next((number for number in NUMBER.findall(claim) if _normalize(number) not in stated), None)


def _normalize(number: str) -> str:
    if number.casefold() in _NUMBER_WORDS:
        return _NUMBER_WORDS[number.casefold()]
    whole = _GROUPED.sub(lambda match: re.sub(r"\D", "", match[0]), number, count=1)
    return _LEADING_ZERO.sub("", whole.replace(",", "."))


def find_other_unit(claim: str, evidence: str) -> str | None:
    """Return a quantity of the claim whose number has only other units in the evidence.

    The result is None where there is none. A number that has no unit there, as in a table, may have any.
    """
    stated = find_quantities(evidence)
    for number, unit in sorted(find_quantities(claim)):
        units = {other for same, other in stated if same == number and (other in _SCALES) == (unit in _SCALES)}
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


def find_quantities(text: str) -> dict[tuple[str, str], str]:
    """Return number and unit of measure of each quantity of a text, with its words."""
    mentions = [(match[2], match[1], match[0]) for match in _MONEY.finditer(text)]
    for match in _QUANTITY.finditer(text):
        number, first, second = match.groups()
        mentions.append((number, first, text[match.start() : match.end(2)]))
        if second and _find_unit(first) in _SCALES:
            mentions.append((number, second, match[0]))
    quantities = {}
    for number, word, mention in mentions:
        if (unit := _find_unit(word)) is not None:
            quantities[_normalize(number), unit] = mention
    return quantities


def _find_unit(word: str) -> str | None:
    return _UNITS.get(re.sub(r" (?=p(?:oint|unkt))", "-", word.casefold()))
