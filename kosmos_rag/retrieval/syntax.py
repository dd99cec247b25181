"""The syntax of questions: phrases in quotes, required and excluded terms."""

import re
from dataclasses import dataclass

_LETTER = r"[^\W\d_²³¹¼½¾]"
_QUOTE = '["“”]'

# A quote opens where no word ends before it: 5" is a size. A required term ends at a quote, which is read as it would
# be without the operator; an excluded one takes it along, or what goes would change how the rest is read.
_MARKED = re.compile(
    rf"""
      (?P<of_phrase>(?<!\S)[+-])? (?<!\w){_QUOTE} (?P<phrase>[^"“”]*) {_QUOTE} (?P<joined>(?=\w|{_QUOTE}))?
    | (?<!\S)(?P<of_term>(?P<plus>\+)|-) (?P<term>{_LETTER}(?(plus)[^\s"“”]*|\S*))
    """,
    re.VERBOSE,
)
_OPERATOR = re.compile(rf"(?<!\S)[+-](?={_LETTER})")
_AFTER_TERM = ".,;:!?)]}'\"“”…"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a question asks for. A term is one word, or several where it stood in quotes."""

    text: str
    """What is embedded and analysed: without operators, quotes and excluded terms."""
    phrases: tuple[str, ...]
    required: tuple[str, ...]
    excluded: tuple[str, ...]


def parse(question: str) -> Question:
    """Read the operators of a question. Any text is a question: what is no operator is a word."""
    found: dict[str, dict[str, None]] = {"": {}, "+": {}, "-": {}}

    def plain(match: re.Match[str]) -> str:
        operator = match["of_phrase"] or match["of_term"] or ""
        words = " ".join((match["phrase"] or match["term"] or "").split())
        term = words.rstrip(_AFTER_TERM) if match["of_term"] else words
        # One word has no order to keep: quotes around it stress it, as they do in prose.
        if any(character.isalnum() for character in term) and (operator or " " in term):
            found[operator][term] = None
        if operator == "-":
            return " "
        return words if match["joined"] is None else f"{words} "

    marked = " ".join(_MARKED.sub(plain, question).split())
    return Question(
        # Operators within a phrase, or before what an excluded term has left, would be read as such the next time.
        text=_OPERATOR.sub("", marked),
        phrases=tuple(found[""]),
        required=tuple(found["+"]),
        excluded=tuple(found["-"]),
    )
