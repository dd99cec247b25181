"""One question made of a conversation, so that it can be searched for without what came before."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kosmos_rag.answering.sanitize import cleaned
from kosmos_rag.answering.templates import Prompt
from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import ModelError, first_line
from kosmos_rag.core.protocols import LanguageModel
from kosmos_rag.core.types import Turn

_LONGEST_QUESTION = 1_000
_LONGEST_TURN = 2_000
_TOKENS = 200
# Quotes would make phrases of what is a question.
_MARKS = str.maketrans("", "", '"“”„«»*`')

SAMPLE = {"question": "And in June?", "history": (Turn(question="What was churn in May?", answer="3 %. [1]"),)}
"""What a template of conversations is checked with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """The question to search for."""

    question: str
    warnings: tuple[str, ...] = ()
    """Why it is the one that was asked though a conversation went before."""


def condensed(model: LanguageModel, prompt: Prompt, question: str, history: Sequence[Turn]) -> Searched:
    """Let the model make one question of a conversation; where it fails, it is the question as asked, with a note."""
    turns = [Turn(question=turn.question[:_LONGEST_TURN], answer=turn.answer[:_LONGEST_TURN]) for turn in history]
    fenced = [question, *(turn.question for turn in turns), *(turn.answer for turn in turns)]
    try:
        messages = prompt.messages({"question": question, "history": turns}, fenced=fenced)
        pieces = model.stream(messages, max_tokens=_TOKENS)
        try:
            return Searched(question=_question(model, pieces))
        finally:
            pieces.close()
    except Exception as error:  # noqa: BLE001 — whatever a model of the caller raises, the question can be asked
        return Searched(question=question, warnings=(f"searched without the conversation: {first_line(error)}",))


def _question(model: LanguageModel, pieces: Iterable[str]) -> str:
    written = "".join(cleaned(pieces, evidence="", link_hosts=()))
    lines = (" ".join(line.translate(_MARKS).split()) for line in written.splitlines())
    question = next((line[:_LONGEST_QUESTION] for line in lines if any(char.isalnum() for char in line)), None)
    if question is None:
        raise ModelError(f"language model {model.name!r} made no question of it, but {one_line(show(written))}")
    return question
