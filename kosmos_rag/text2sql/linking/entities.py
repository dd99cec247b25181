"""Entities of a question: quoted and known values, names, dates, numbers, comparisons."""

import re
from collections.abc import Callable, Sequence
from datetime import date
from operator import itemgetter
from typing import Literal

from kosmos_rag.core.text import numbers
from kosmos_rag.engine.time_ranges import find_time_ranges, find_times
from kosmos_rag.text2sql.linking.known_values import ValueMatch
from kosmos_rag.text2sql.linking.words import QUOTED
from kosmos_rag.text2sql.records import Entities, NumberBound

Operator = Literal[">", ">=", "<", "<="]

_NUMBER = re.compile(rf"(?<![\w.-])-?{numbers.NUMBER}(?![\w-])")
_NAMES = re.compile(r"(?<!^)(?<![.?!:] )\b[A-Z]\w+(?: [A-Z]\w+)*")
_MORE = "more|greater|higher|larger|bigger|longer|older"
_LESS = "less|fewer|lower|smaller|shorter|younger"
_ABOVE = {
    "english": rf"(?:{_MORE}) than|over|above|exceed\w*",
    "german": "(?:mehr|größer|höher|länger|älter) als|über",
    "spanish": "más de|mayor(?:es)? (?:que|a|de)",
}
_BELOW = {
    "english": f"(?:{_LESS}) than|under|below",
    "german": "(?:weniger|kleiner|niedriger|kürzer|jünger) als|unter",
    "spanish": "menos de|menor(?:es)? (?:que|a|de)",
}
_NOT = {"english": r"(?:no|not|\w+n['\u2019]t)(?: be| to)?", "german": "nicht", "spanish": "no"}
_AFFIRMED = r"(?<!\bno )(?<!\bnot )(?<!n['\u2019]t )(?<!\bnot be )(?<!\bnot to )"


def _with_negations(words: dict[str, str], opposites: dict[str, str]) -> dict[str, str]:
    """Return words of each language, and the negations of the opposite."""
    return {language: f"{phrase}|{_NOT[language]} (?:{opposites[language]})" for language, phrase in words.items()}


_AT_LEAST = _with_negations({"english": "at least", "german": "mindestens", "spanish": "al menos"}, _BELOW)
_AT_MOST = _with_negations({"english": "at most|up to", "german": "höchstens|bis zu", "spanish": "como máximo"}, _ABOVE)
_COMPARISONS = {
    ">": (
        rf"\b(?:{_AT_LEAST['english']}|{_NOT['english']} (?:earlier than|before)"
        rf"|{_AFFIRMED}(?:{_MORE}|later|over|above|exceed\w*|after|since))\b"
    ),
    "<": (
        rf"\b(?:{_AT_MOST['english']}|{_NOT['english']} (?:later than|after)"
        rf"|{_AFFIRMED}(?:{_LESS}|earlier|under|below|before))\b"
    ),
    "between": r"\bbetween\b",
    "max": r"\b(?<!at )(?:most|highest|largest|maximum|oldest|longest|latest|newest|biggest|greatest|tallest|top)\b",
    "min": r"\b(?<!at )(?:least|fewest|lowest|smallest|minimum|youngest|shortest|earliest|cheapest|bottom)\b",
    "average": r"\b(?:average|mean)\b",
    "sum": r"\b(?:total|sum|altogether)\b",
    "count": r"\b(?:how many|number of|count)\b",
}
_OPERATORS: dict[Operator, dict[str, str]] = {">=": _AT_LEAST, "<=": _AT_MOST, ">": _ABOVE, "<": _BELOW}
"""In this order: `no more than` has `more than`. The language decides what the signs of the number mean."""
_RANGES = {"english": ("between", "and"), "german": ("zwischen", "und"), "spanish": ("entre", "y")}
"""Words before both numbers of a range, which belong to it."""
_SIGNED = rf"(?>-?{numbers.NUMBER})"
_END = r"(?![\w-])(?! (?:hundred|thousand|million|billion|trillion|tausend|million|milliarde|mil\b|millon|millón))"
"""After a number that is not multiplied by the next word."""
_BETWEEN = [
    (
        language,
        re.compile(rf"\b{before} (?P<least>{_SIGNED}) {between} (?P<most>{_SIGNED}){_END}", re.IGNORECASE),
    )
    for language, (before, between) in _RANGES.items()
]
_BOUNDS = [
    (operator, language, re.compile(rf"\b(?:{words}) (?P<number>{_SIGNED}){_END}", re.IGNORECASE))
    for operator, by_language in _OPERATORS.items()
    for language, words in by_language.items()
]
_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _COMPARISONS.items()}


def find_entities(
    question: str,
    *,
    values: Sequence[ValueMatch] = (),
    row_names: Callable[[str], Sequence[str]] = lambda _: (),
    today: date,
) -> Entities:
    """Extract the entities of a question.

    Args:
        values: Known values of columns that the question says.
        row_names: Returns the names of rows that the schema's words reveal in a text without times.
        today: Reference date of relative dates.
    """
    quoted = tuple(next(filter(None, match.groups())) for match in QUOTED.finditer(question))
    unquoted = QUOTED.sub(" ", question)
    times = find_times(unquoted, today)
    without_dates = unquoted  # March is no name there, and 3 no number
    for time in times:
        start, end = time.span
        without_dates = f"{without_dates[:start]}{'_' * (end - start)}{without_dates[end:]}"
    return Entities(
        quoted=quoted,
        values=tuple(match.value for match in values),
        misspelt=tuple((match.text, match.value) for match in values if not match.exact),
        names=tuple(dict.fromkeys([*_NAMES.findall(without_dates), *row_names(without_dates)])),
        dates=tuple(dict.fromkeys((time.text, time.day) for time in times)),
        time_ranges=find_time_ranges(unquoted, today),
        bounds=_find_bounds(without_dates),
        numbers=tuple(_NUMBER.findall(without_dates)),
        comparisons=tuple(name for name, pattern in _COMPILED.items() if pattern.search(unquoted)),
    )


def _find_bounds(text: str) -> tuple[NumberBound, ...]:
    """Return the numbers that a text compares with, in the order of the text."""
    bounds: dict[int, NumberBound | None] = {}

    def add(match: re.Match[str], group: str, operator: Operator, language: str) -> None:
        number = numbers.read_number(match[group], language)
        bound = None if number is None else NumberBound(text=match[0], operator=operator, number=number)
        bounds.setdefault(match.start(group), bound)

    for operator, language, pattern in _BOUNDS:
        for match in pattern.finditer(text):
            add(match, "number", operator, language)
    for language, pattern in _BETWEEN:
        for match in pattern.finditer(text):
            add(match, "least", ">=", language)
            add(match, "most", "<=", language)
    return tuple(bound for _, bound in sorted(bounds.items(), key=itemgetter(0)) if bound is not None)
