"""Sentence segmentation without loss: the spans of the sentences partition the text."""

import re
from collections.abc import Iterator

_STOPS = ".!?…؟।॥۔"  # noqa: RUF001
_CLOSERS = r"\"'”’»)\]"  # noqa: RUF001
_CJK_STOPS = "。！？｡"  # noqa: RUF001
_CJK_CLOSERS = r"」』”’）】\"')\]"  # noqa: RUF001
_CJK_PAUSES = "，、；："  # noqa: RUF001

WORD_START = re.compile(rf"[\s{_CJK_STOPS}{_CJK_PAUSES}](\S)")
SENTENCE_START = re.compile(rf"(?:[{_STOPS}][{_CLOSERS}]*\s|[{_CJK_STOPS}])\s*(\S)")
LINE_START = re.compile(r"\n[^\S\n]*(\S)")

_CANDIDATE = re.compile(
    rf"""
      (?P<stop> [{_STOPS}] (?<! [{_STOPS}]{{2}} ) [{_STOPS}]*+ )  # the whole run: `...`, `?!`
      [{_CLOSERS}*_`]*+ (?P<gap> \s++ )
    | (?P<cjk> [{_CJK_STOPS}]++ ) [{_CJK_CLOSERS}]*+ \s*+
    | (?P<line> \n \s*+ )
    """,
    re.VERBOSE,
)
_LAST_WORD = re.compile(r"(?<!\w['’])[\w.]+\Z")  # noqa: RUF001
"""The `s` of `the signal's.` is not a word."""
_LONGEST_ABBREVIATION = 12
_WRAPPED_LINE = 40
"""A line of so many characters may be wrapped, so its end is no sentence end."""

_BEFORE_A_NAME = frozenset(
    {"al", "approx", "ca", "capt", "cf", "col", "dr", "gen", "gov", "hon", "lt", "messrs", "mr", "mrs", "ms"}
    | {"prof", "rep", "resp", "rev", "sen", "sgt", "st", "vs"}
    | {"bspw", "bzw", "evtl", "ggf", "inkl", "sog", "vgl", "zzgl", "sr", "sra", "ud", "uds"}
)
_BEFORE_A_NUMBER = frozenset(
    {
        "abs",
        "art",
        "ch",
        "eq",
        "eqs",
        "fig",
        "figs",
        "kap",
        "no",
        "nos",
        "nr",
        "p",
        "pp",
        "ref",
        "refs",
        "sec",
        "tab",
        "vol",
    }
)
_DATE = re.compile(
    r"""
      \d{1,2}\.[ \xa0]+\d{1,2}\.(?!\d)
    | (?<= \d\.[ \xa0] ) \d{1,2}\.[ \xa0]+\d{2}(?:\d{2})?\b
    | \d{1,2}\.\s+(?:Januar|Februar|März|April|Mai|Ju[nl]i|August|September|Oktober|November|Dezember)\b
    """,
    re.VERBOSE,
)
"""`31. 12. 2026`, at either number, and `31. März`."""
_ARTICLE = re.compile(r"\b(?:(?P<before_date>am|zum|vom)|der|des|dem|den|das|die|im|zur|beim)\s+\Z", re.IGNORECASE)
"""Before an ordinal number of German, if a noun follows: `der 2. Teil`. After `am` the number is often a date."""
_COUNTED = re.compile(
    r"""
      \w*(?:tag|monat|quartal|semester|jahr|jahrzehnt|jahrhundert|jahrtausend)
    | Tage | Mittwoch | Sonnabend | Wochenende | Advent | Mal | Platz | Teil | Kapitel | Weltkrieg | Vorsitzenden
    | Jänner | (?:Jan|Feb|Mär|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A noun of time or count: `am 3. Werktag`."""
_NO_NOUNS = frozenset(
    {"ab", "aber", "alle", "allerdings", "als", "am", "an", "andernfalls", "anschließend", "ansonsten", "auch", "auf"}
    | {"aus", "außerdem", "bei", "beim", "bis", "bitte", "da", "dabei", "dadurch", "dafür", "damit", "danach", "dann"}
    | {"darin", "das", "dass", "davon", "dazu", "dem", "den", "der", "dies", "diese", "dieser", "dieses", "die", "doch"}
    | {"durch", "ein", "eine", "er", "erst", "es", "falls", "für", "gegen", "hier", "ich", "ihr", "im", "in", "ist"}
    | {"jede", "jeder", "jedes", "jedoch", "kein", "keine", "man", "mit", "nach", "nun", "nur", "ob", "ohne", "seit"}
    | {"sie", "sind", "so", "sollte", "sollten", "sonst", "später", "unter", "vom", "von", "vor", "während", "was"}
    | {"weitere", "wenn", "wer", "wie", "wir", "wird", "wo", "zu", "zudem", "zum", "zur", "zusätzlich"}
)
"""Words that begin sentences of German."""
_WORD = re.compile(r"[^\W\d_]+")
_DOTTED = re.compile(r"(?:\w\.)*[^\W\d]")
"""Initials and abbreviations of single letters: `J`, `e.g`, `U.S`."""


def sentences(text: str, span: tuple[int, int], *, by_lines: bool = True) -> Iterator[tuple[int, int]]:
    """Split a span of the text into sentences; yield their spans.

    A sentence ends at a full stop, question or exclamation mark with white space after it, at a CJK one, and at a blank
    line. White space belongs to the sentence before it. No sentence is blank unless the span is.

    Args:
        text: the whole text.
        span: start and end of the part to split.
        by_lines: whether a line end ends a sentence too, unless the line is wrapped.
    """
    start, end = span
    for candidate in _CANDIDATE.finditer(text, start, end):
        if candidate.end() == end:
            break
        if _ends_sentence(text, start, candidate, by_lines) and not text[start : candidate.end()].isspace():
            yield start, candidate.end()
            start = candidate.end()
    if start < end:
        yield start, end


def _ends_sentence(text: str, start: int, candidate: re.Match[str], by_lines: bool) -> bool:
    if candidate["cjk"]:
        return True
    gap = candidate["gap"] or candidate["line"]
    if gap.count("\n") > 1:
        return True
    following = text[candidate.end()]
    if candidate["line"]:
        return by_lines and not (following.islower() and _is_long_line(text, candidate.start()))
    if following.islower() and not _is_stop_before_lower_case(text, start, candidate):
        return by_lines and "\n" in gap and not _is_long_line(text, candidate.start())
    return candidate["stop"] != "." or not _is_abbreviation(text, start, candidate)


def _is_stop_before_lower_case(text: str, start: int, candidate: re.Match[str]) -> bool:
    """Whether a stop ends a sentence although a lower-case letter follows.

    It does where the text starts sentences in lower case, and where a space precedes it, as in tokenised text.
    """
    stop = candidate.start("stop")
    return text[start : start + 1].islower() or (len(candidate["stop"]) == 1 and text[stop - 1].isspace())


def _is_long_line(text: str, end: int) -> bool:
    start = end - _WRAPPED_LINE
    return start >= 0 and "\n" not in text[start:end]


def _is_abbreviation(text: str, start: int, candidate: re.Match[str]) -> bool:
    stop, end = candidate.start("stop"), candidate.end()
    match = _LAST_WORD.search(text, max(start, stop - _LONGEST_ABBREVIATION), stop)
    if not match:
        return False
    word = match[0].casefold()
    if word in _BEFORE_A_NUMBER:
        return text[end].isdigit()
    if word.isdigit():
        # `1. Open the lid`: the number of a list item, not a sentence.
        is_item = match.start() == start or text[start : match.start()].isspace()
        return is_item or _DATE.match(text, match.start()) is not None or _is_ordinal(text, start, match, end)
    return word in _BEFORE_A_NAME or _DOTTED.fullmatch(word) is not None


def _is_ordinal(text: str, start: int, number: re.Match[str], end: int) -> bool:
    noun = _WORD.match(text, end)
    before = max(start, number.start() - _LONGEST_ABBREVIATION)
    article = _ARTICLE.search(text, before, number.start())
    if noun is None or article is None:
        return False
    if article["before_date"]:
        return _COUNTED.fullmatch(noun[0]) is not None
    return noun[0].lower() not in _NO_NOUNS
