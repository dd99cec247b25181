"""What a language model writes for a question: other wordings, searches, and a hypothetical passage."""

import re

from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import LanguageModel, complete
from kosmos_rag.core.types import is_text
from kosmos_rag.retrieval.expansion.prompts import prompt
from kosmos_rag.retrieval.expansion.words import normalize_words

_MAX_WORDING_CHARS = 400
_MAX_PASSAGE_CHARS = 2_000
_WORDING_TOKENS = 100
_PASSAGE_TOKENS = 300

# Bullets and numbers that a model puts before a wording though it is asked not to; 3.5 is no such number.
_BULLET = re.compile(r"^[\s>#*•·\u2013\u2014+-]*(?:\(?\d{1,2}(?:[.)](?!\d)|:\s))?")
# Quotes would make phrases of what is a question; asterisks and backticks are Markdown.
_MARKS = str.maketrans("", "", '"“”„«»*`')
_QUOTES = " '\u2018\u2019"
# An introduction ends in one; the second is of Chinese and Japanese.
_COLONS = (":", "\uff1a")


def other_wordings(model: LanguageModel, question: str, count: int) -> tuple[str, ...]:
    """Generate other wordings of a question.

    None repeats the question or another one, or has more than 400 characters.

    Args:
        count: Number of wordings to request, and maximum number returned; at least 1.

    Raises:
        ModelError: The model fails or generates none.
    """
    answer = complete(model, prompt("other_wordings", question, count=count), max_tokens=count * _WORDING_TOKENS)
    distinct = _questions(answer, question)
    if not distinct:
        raise _unusable_output(model, "other wording of the question", answer, "rag.expansion.queries=0")
    return tuple(distinct[:count])


def plan_searches(model: LanguageModel, question: str, count: int) -> tuple[str, ...]:
    """Plan the searches that an answer to a question needs in addition to it.

    None repeats the question or another one, or has more than 400 characters; empty where one search is enough.

    Args:
        count: Number of searches, at most; at least 1.

    Raises:
        ModelError: The model fails.
    """
    answer = complete(model, prompt("searches", question, count=count), max_tokens=count * _WORDING_TOKENS)
    return tuple(_questions(answer, question)[:count])


def _questions(answer: str, question: str) -> list[str]:
    """Return the lines of an answer that differ from the question and from each other."""
    lines: dict[tuple[str, ...], str] = {}
    for line in _lines(answer):
        cleaned = _BULLET.sub("", line).translate(_MARKS)[:_MAX_WORDING_CHARS].strip(_QUOTES)
        lines.setdefault(tuple(normalize_words(cleaned)), cleaned)
    return [line for key, line in lines.items() if key not in ((), tuple(normalize_words(question)))]


def hypothetical_passage(model: LanguageModel, question: str) -> str:
    """Generate a passage that could answer the question (HyDE).

    At most 2000 characters, to search for similar passages. Source: Gao et al. 2022, arXiv 2212.10496, with one passage
    where the paper takes several.

    Raises:
        ModelError: The model fails or generates none.
    """
    answer = complete(model, prompt("hypothetical_passage", question), max_tokens=_PASSAGE_TOKENS)
    passage = " ".join(_lines(answer))[:_MAX_PASSAGE_CHARS].rstrip()
    if not passage:
        raise _unusable_output(model, "passage that could answer the question", answer, "rag.expansion.hyde=false")
    return passage


def _lines(answer: str) -> list[str]:
    """Return the lines with content.

    Without reasoning, fences and introductions such as `Here are 3 wordings:`.
    """
    # Some models begin their reasoning in the prompt, so that only its end is here; some run out of tokens before it.
    output = answer.rpartition("</think>")[2].partition("<think>")[0]
    lines = (" ".join(line.split()) for line in output.splitlines())
    return [
        line
        for line in lines
        if normalize_words(line) and is_text(line) and not line.endswith(_COLONS) and line[:3] != "```"
    ]


def _unusable_output(model: LanguageModel, expected: str, answer: str, setting: str) -> ModelError:
    return ModelError(
        f"language model {model.name!r} wrote no {expected}, but {one_line(show(answer))}: "
        f"set language_model.model to one that follows instructions without reasoning aloud, or set {setting}"
    )
