"""What a language model writes to search by: other wordings of a question, and a passage that could answer it."""

import re

from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import LanguageModel, complete
from kosmos_rag.core.types import is_text
from kosmos_rag.retrieval.expansion.prompts import prompt
from kosmos_rag.retrieval.expansion.words import normalized_words

_LONGEST_WORDING = 400
_LONGEST_PASSAGE = 2_000
_TOKENS_OF_A_WORDING = 100
_TOKENS_OF_A_PASSAGE = 300

# Bullets and numbers that a model puts before a wording though it is asked not to; 3.5 is no such number.
_BULLET = re.compile(r"^[\s>#*•·\u2013\u2014+-]*(?:\(?\d{1,2}(?:[.)](?!\d)|:\s))?")
# Quotes would make phrases of what is a question; asterisks and backticks are Markdown.
_MARKS = str.maketrans("", "", '"“”„«»*`')
_ENDS = " '\u2018\u2019"
# An introduction ends in one; the second is of Chinese and Japanese.
_COLONS = (":", "\uff1a")


def other_wordings(model: LanguageModel, question: str, count: int) -> tuple[str, ...]:
    """Ask for other wordings of a question.

    `count`, at least 1, is how many to ask for and the most returned. None repeats the question or another one, or has
    more than 400 characters. Raises ModelError where the model fails or writes none.
    """
    answer = complete(model, prompt("other_wordings", question, count=count), max_tokens=count * _TOKENS_OF_A_WORDING)
    wordings: dict[tuple[str, ...], str] = {}
    for line in _lines(answer):
        wording = _BULLET.sub("", line).translate(_MARKS)[:_LONGEST_WORDING].strip(_ENDS)
        wordings.setdefault(tuple(normalized_words(wording)), wording)
    found = [wording for said, wording in wordings.items() if said not in ((), tuple(normalized_words(question)))]
    if not found:
        raise _useless(model, "other wording of the question", answer, "rag.expansion.queries=0")
    return tuple(found[:count])


def hypothetical_passage(model: LanguageModel, question: str) -> str:
    """Ask for a passage that could answer a question, at most 2000 characters, to search for passages like it.

    HyDE, Gao et al. 2022, arXiv 2212.10496, with one passage where the paper takes several.
    Raises ModelError where the model fails or writes none.
    """
    answer = complete(model, prompt("hypothetical_passage", question), max_tokens=_TOKENS_OF_A_PASSAGE)
    passage = " ".join(_lines(answer))[:_LONGEST_PASSAGE].rstrip()
    if not passage:
        raise _useless(model, "passage that could answer the question", answer, "rag.expansion.hyde=false")
    return passage


def _lines(answer: str) -> list[str]:
    """Return the lines of an answer that say something: no reasoning, no fences, no `Here are 3 wordings:`."""
    # Some models begin their reasoning in the prompt, so that only its end is here; some run out of tokens before it.
    written = answer.rpartition("</think>")[2].partition("<think>")[0]
    lines = (" ".join(line.split()) for line in written.splitlines())
    return [
        line
        for line in lines
        if normalized_words(line) and is_text(line) and not line.endswith(_COLONS) and line[:3] != "```"
    ]


def _useless(model: LanguageModel, wanted: str, answer: str, off: str) -> ModelError:
    return ModelError(
        f"language model {model.name!r} wrote no {wanted}, but {one_line(show(answer))}: "
        f"set language_model.model to one that follows instructions without reasoning aloud, or set {off}"
    )
