"""Numbers with their units, negations and antonyms of a claim that is checked against its evidence."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from kosmos_rag.answering.words import ENGLISH, stems
from kosmos_rag.core.text import numbers
from kosmos_rag.core.text.languages import FUNCTION_WORDS, LANGUAGES, choose_text_language

_FOLDER = Path(__file__).parent


def _read_lines(name: str) -> list[str]:
    return (_FOLDER / name).read_text(encoding="utf-8").splitlines()


def _read_number_words() -> dict[str, dict[str, str]]:
    """Return the value of each word by language, small and capitalised: an acronym is no number."""
    languages, *lines = (line.replace(":", "").split() for line in _read_lines("number_words.txt"))
    values: dict[str, dict[str, str]] = {language: {} for language in languages}
    for value, *words in lines:
        for language, word in zip(languages, words, strict=True):
            values[language] |= {word: value, word.capitalize(): value}
    return values


_UNITS = {
    word: unit
    for line in _read_lines("units_of_measure.txt")
    for unit, _, words in [line.partition(": ")]
    for word in words.split()
}
"""Units of measure by their words, of English and German."""
_SCALES = frozenset({"thousand", "million", "billion"})
"""Those that may come before another one: 3 million euros."""
_NUMBER_WORDS = _read_number_words()
_NEGATION_LINES = dict(line.split(": ", 1) for line in _read_lines("negations.txt"))
_COMPARISONS = tuple(_NEGATION_LINES.pop("comparison").split(", "))
"""Phrases with a word of negation that negate nothing."""
_UPPER_BOUNDS, _LOWER_BOUNDS = (_NEGATION_LINES.pop(name).replace(", ", "|") for name in ("upper", "lower"))
_NEGATIONS = frozenset(word for words in _NEGATION_LINES.values() for word in words.split())
_BEFORE_THE_WORD = (
    r"(?<!\bcan )\b(?:not|never|no longer|(?!can't)\w+n't|nicht|nie|niemals)(?: (?:be|been|yet|mehr))*"
    r"|\b(?:no|nobody|none|neither|nor|nothing)(?: \w+){0,3} (?:is|are|was|were|be|been)"
)
_OF_THE_NEXT_WORD = rf"(?:{_BEFORE_THE_WORD}|\b(?:kein\w*|niemand|weder(?:(?: \w+){{1,3}} noch)?)(?: \w+){{1,3}}) "
"""A negation that concerns the next word. What cannot be raised may be neither raised nor reduced."""
_NEGATED_WORD = re.compile(rf"(?:{_BEFORE_THE_WORD}|\b(?:instead of|rather than)) (\w{{3,}})")
_NEGATED_BOUND = re.compile(
    r"(?:\b(?:not|never|cannot|nicht)|n't)"
    r"( (?!(?:only|just|always|nur|immer) )[\w-]+(?: (?:an?|any|the) [\w-]+ of)?)"
    r" (?:(?P<more>more than|mehr als)|less than|fewer than|weniger als)\b"
)
"""Does not support more than 64: supports at most 64. A second verb may have a bound without its negation."""
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")


class _Antonym(NamedTuple):
    """Patterns of words with one meaning, and of words with the opposite one."""

    word: re.Pattern[str]
    opposite: re.Pattern[str]
    negated_word: re.Pattern[str]
    negated_opposite: re.Pattern[str]
    is_complementary: bool
    """Whether what is not the one is the other: not allowed is forbidden, not high may be medium."""


@cache
def _read_antonyms() -> Sequence[_Antonym]:
    """Return both directions of each pair.

    The words are as they are written: `optional` and `option` have one stem. Their patterns take 25 ms, which commands
    that check no answer do not wait for.
    """
    antonyms = []
    for line in _read_lines("antonyms.txt"):
        kind, _, pairs = line.casefold().partition(": ")
        for pair in pairs.split(", "):
            sides = [side.replace(" ", "|").replace("_", " ") for side in pair.split(" | ")]
            for word, opposite in (sides, sides[::-1]):
                antonyms.append(
                    _Antonym(
                        word=re.compile(rf"\b(?:{word})\b"),
                        opposite=re.compile(rf"\b(?:{opposite})\b"),
                        negated_word=re.compile(rf"{_OF_THE_NEXT_WORD}(?:{word})\b"),
                        negated_opposite=re.compile(rf"{_OF_THE_NEXT_WORD}(?:{opposite})\b"),
                        is_complementary=kind.endswith(" complementary"),
                    )
                )
    return antonyms


_DIGITS = rf"(?<![\w.,])(?<!\d[:'\u2019\u00a0\u202f]){numbers.NUMBER}(?::{numbers.NUMBER})*"
"""A search begins once in a run of digits and signs: the time of a long one would be quadratic."""
_DAY = r"(?<![\w.])\d{4}-\d\d-\d\d(?!\d)"
_SPACED_GROUPS = re.compile(r"(?<![\w.,:'\u2019\u00a0\u202f-])[1-9]\d{0,2}(?: \d{3})+(?![\w:'\u2019]|[.,]\d{3}(?!\d))")
"""1 000 000 as Swiss, French or SI texts write it."""
_LABELLED = re.compile(
    r"\b(?i:article|chapter|day|figure|item|level|line|number|page|part|phase|room|row|section|step|table|version|week"
    r"|abbildung|abschnitt|artikel|kapitel|linie|nummer|raum|schritt|seite|stufe|tabelle|tag|teil|woche|zeile)"
    r" \d{1,3}(?= \d{3})"
)
"""Chapter 3 200 pages long: a number that may end before the space."""
_LEADING_ZERO = re.compile(r"(?<![\d.])0+(?=\d)")
_VERSION = re.compile(r"(?<!\w)([A-Z]\w*|[Vv]ersions?|[Rr]eleases?) (\d+\.\d+)(?!\w|[.,]\d)")
"""3.10 is not 3.1 in Python 3.10, and is in EUR 3.10."""
_UNIT = r"(?i:%|€|\$|[^\W\d_]+(?:[ -](?:points?|punkte?n?)\b)?)"
_MONEY = re.compile(rf"([€$])[ \u00a0]?({_DIGITS})")
_WORD = re.compile(r"[^\W\d_]+(?:'t\b)?")


class _Patterns(NamedTuple):
    """Patterns of the numbers of a language, and of those with a unit."""

    number: re.Pattern[str]
    quantity: re.Pattern[str]
    bound: re.Pattern[str]


def _compile(language: str) -> _Patterns:
    written_out = "|".join(_NUMBER_WORDS.get(language, ()))
    number = rf"{_DIGITS}|(?<![\w-])(?:{written_out})(?![\w-])" if written_out else _DIGITS
    return _Patterns(
        number=re.compile(rf"{_DAY}|{number}"),
        quantity=re.compile(rf"({number})[ \u00a0-]?({_UNIT})(?:[ \u00a0]({_UNIT}))?"),
        bound=re.compile(rf"\b(?i:(?P<upper>{_UPPER_BOUNDS})|{_LOWER_BOUNDS}) (?P<number>{number})"),
    )


_PATTERNS = {language: _compile(language) for language in LANGUAGES}


class StatedNumbers:
    """The numbers and quantities of evidence."""

    def __init__(self, evidence: str, language: str | None = None) -> None:
        """Read the numbers.

        Args:
            language: Of the evidence; None finds it.
        """
        self._evidence = evidence
        self.language = language or _find_language(evidence, ENGLISH)
        # "Room 5 100 seats" has 5 and 100, and may be meant as 5,100.
        texts = dict.fromkeys((evidence, _join_groups(evidence)))
        mentions = [pair for text in texts for pair in _iterate_numbers(text, self.language)]
        self._spellings = {number for number, _ in mentions}
        values = {value for _, value in mentions}
        self._values = values | {part for value in values for part in value.split("-")}

    @cached_property
    def _quantities(self) -> Collection[tuple[str, str]]:
        return find_quantities(self._evidence, self.language)

    def find_missing(self, claim: str) -> str | None:
        """Return a number of the claim that the evidence lacks, as the claim has it.

        The result is None where there is none. Numbers are equal that are written alike or have one value: 1,850 and
        1 850 are 1850, 3.50 is 3.5, 02:30 is 2:30, and three is 3.
        """
        language = _find_language(claim, self.language)
        texts = dict.fromkeys((_join_groups(claim), _join_groups(_LABELLED.sub(r"\g<0>,", claim))))
        missing = [next(self._iterate_missing(text, language), None) for text in texts]
        return missing[0] if None not in missing else None

    def _iterate_missing(self, text: str, language: str) -> Iterator[str]:
        for number, value in _iterate_numbers(text, language):
            if number not in self._spellings and value not in self._values:
                yield number

    def find_other_unit(self, claim: str) -> str | None:
        """Return a quantity of the claim whose number has only other units in the evidence.

        The result is None where there is none. A number that has no unit there, as in a table, may have any.
        """
        for number, unit in sorted(find_quantities(claim, self.language)):
            units = {
                other for same, other in self._quantities if same == number and (other in _SCALES) == (unit in _SCALES)
            }
            if units and unit not in units:
                return f"{number} {unit}"
        return None

    def find_other_bound(self, claim: str) -> str | None:
        """Return a bound of the claim whose number has only the opposite bound in the evidence.

        "At least 5" is opposite to "at most 5". The result is None where there is none. A sentence with a negation may
        have either meaning.
        """
        if is_negated(claim):
            return None
        stated = _find_bounds(self._evidence, self.language)
        for value, bounds in _find_bounds(claim, self.language).items():
            for is_upper, mention in bounds.items():
                if stated.get(value) and is_upper not in stated[value]:
                    return mention
        return None


def _find_bounds(text: str, otherwise: str) -> dict[str, dict[bool, str]]:
    """Return the bounds before each number, by its value and whether they are upper ones."""
    language = _find_language(text, otherwise)
    bounds: dict[str, dict[bool, str]] = {}
    for sentence in _SENTENCE_END.split(text):
        negated = is_negated(sentence)
        for match in _PATTERNS[language].bound.finditer(_replace_negated_bounds(" ".join(sentence.split()))):
            is_upper = match["upper"] is not None
            meanings = (True, False) if negated else (is_upper,)
            bounds.setdefault(_normalize(match["number"], language), {}).update(dict.fromkeys(meanings, match[0]))
    return bounds


def _replace_negated_bounds(text: str) -> str:
    """Replace "not … more than" by "at most", and "not … less than" by "at least"."""
    return _NEGATED_BOUND.sub(lambda match: f"{match[1]} at {'most' if match['more'] else 'least'}", text)


def _join_groups(text: str) -> str:
    """Replace plain spaces between groups of three digits by those that do not break."""
    return _SPACED_GROUPS.sub(lambda match: match[0].replace(" ", "\u00a0"), text)


def _find_language(text: str, otherwise: str) -> str:
    """Return the language of a text, which may be one sentence.

    Args:
        otherwise: The language of a text whose words show none.
    """
    words = set(_WORD.findall(text))
    folded = {word.lower() for word in words}
    # Number words decide between languages with the same function words: "es" is German and Spanish.
    counts = {
        name: (len(folded & FUNCTION_WORDS[name]), len(words & number_words.keys()))
        for name, number_words in _NUMBER_WORDS.items()
    }
    best = max(counts, key=lambda name: counts[name])
    # Only English has other signs than the rest.
    rivals = counts.keys() - {best} if best == ENGLISH else {ENGLISH}
    is_clear = all(counts[name][0] < counts[best][0] for name in rivals)
    return choose_text_language(text, best if is_clear else otherwise, LANGUAGES)


def _iterate_numbers(text: str, language: str) -> Iterator[tuple[str, str]]:
    """Yield each number of a text and its value."""
    versions = {match.start(2) for match in _VERSION.finditer(text) if _find_unit(match[1]) is None}
    for match in _PATTERNS[language].number.finditer(text):
        yield match[0], match[0] if match.start() in versions else _normalize(match[0], language)


def _normalize(number: str, language: str) -> str:
    word_value = _NUMBER_WORDS.get(language, {}).get(number)
    return word_value or numbers.read_number(number, language) or _LEADING_ZERO.sub("", number.replace(",", "."))


def is_negated(text: str) -> bool:
    """Return whether a text has a word of negation, of English or German."""
    return any(word in _NEGATIONS or word.endswith("n't") for word in _words(text))


def find_contradiction(claim: str, evidence: str, *, compares_negation: bool = True) -> str | None:
    """Return a message if a claim and its evidence differ by a negation or an antonym.

    The words are English or German. An antonym whose negation concerns it says the same: what is not allowed is
    forbidden. A text with both meanings has no antonym.

    Args:
        compares_negation: Whether a claim without a negation contradicts evidence that has one.
    """
    claim_words, evidence_words = " ".join(_words(claim)), " ".join(_words(evidence))
    agrees = False
    for pair in _read_antonyms():
        word, opposite = pair.word.search(claim_words), pair.opposite.search(evidence_words)
        if word is None or opposite is None or pair.opposite.search(claim_words) or pair.word.search(evidence_words):
            continue
        claim_negates = pair.negated_word.search(claim_words) is not None
        evidence_negates = pair.negated_opposite.search(evidence_words) is not None
        # What falls does not rise. What does not rise may stay as it is.
        if claim_negates == evidence_negates or not (claim_negates or pair.is_complementary):
            return f"it says {word[0]!r}, and the cited passages {opposite[0]!r}"
        agrees = True
    negated = is_negated(claim)
    if agrees or not compares_negation or is_negated(evidence) == negated:
        return None
    return "it is negated, and the cited passages are not" if negated else "the cited passages negate it"


def find_negated_word(claim: str, evidence: str) -> str | None:
    """Return a word that the evidence negates wherever it has it, and the claim nowhere.

    A word is negated by what is right before it: not recommended, instead of moving. The result is None without one.
    """
    claimed, negated_there = _count_words(claim)
    stated, negated = _count_words(evidence)
    return next((word for word in claimed if 0 < stated[word] == negated[word] and not negated_there[word]), None)


def _count_words(text: str) -> tuple[Counter[str], Counter[str]]:
    """Return how often a text has each stem, and how often right after a negation."""
    folded = " ".join(_words(text))
    return Counter(stems(folded)), Counter(stems(" ".join(_NEGATED_WORD.findall(folded))))


def _words(text: str) -> list[str]:
    """Return the words of a text, case-folded, without comparisons that have a word of negation."""
    folded = _replace_negated_bounds(" ".join(text.casefold().replace("\u2019", "'").split()))
    for phrase in _COMPARISONS:
        folded = folded.replace(phrase, " ")
    return _WORD.findall(folded)


def find_quantities(text: str, otherwise: str) -> dict[tuple[str, str], str]:
    """Return number and unit of measure of each quantity of a text, with its words.

    Args:
        otherwise: The language of a text whose words show none.
    """
    language = _find_language(text, otherwise)
    text = _join_groups(text)
    mentions = [(match[2], match[1], match[0]) for match in _MONEY.finditer(text)]
    for match in _PATTERNS[language].quantity.finditer(text):
        number, first, second = match.groups()
        mentions.append((number, first, text[match.start() : match.end(2)]))
        if second and _find_unit(first) in _SCALES:
            mentions.append((number, second, match[0]))
    quantities = {}
    for number, word, mention in mentions:
        if (unit := _find_unit(word)) is not None:
            quantities[_normalize(number, language), unit] = mention
    return quantities


def _find_unit(word: str) -> str | None:
    return _UNITS.get(re.sub(r" (?=p(?:oint|unkt))", "-", word.casefold()))
