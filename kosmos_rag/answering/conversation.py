"""Rewrite a follow-up question so that it can be searched alone."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kosmos_rag.answering.sanitize import sanitize
from kosmos_rag.answering.templates import Prompt
from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import ModelError, reader_message
from kosmos_rag.core.protocols import LanguageModel
from kosmos_rag.core.types import Turn

logger = logging.getLogger(__name__)

_MAX_QUESTION_CHARS = 1_000
_MAX_TURN_CHARS = 2_000
_MAX_TOKENS = 200
# A quote in the rewritten question would be read as a phrase query.
_MARKS = str.maketrans("", "", '"“”„«»*`')

SAMPLE = {"question": "And in June?", "history": (Turn(question="What was churn in May?", answer="3 %. [1]"),)}
"""Values that a conversation template is validated with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewrittenQuery:
    """The question to search, after rewriting."""

    question: str
    warnings: tuple[str, ...] = ()
    """Why the question was not rewritten; empty where it was, or where there is no conversation."""


def contextualize(model: LanguageModel, prompt: Prompt, question: str, history: Sequence[Turn]) -> RewrittenQuery:
    """Rewrite a question with a language model.

    On failure return it unchanged, with a warning.

    Args:
        prompt: The template of the rewriting prompt.
        history: Earlier turns, oldest first; each is truncated.
    """
    turns = [Turn(question=turn.question[:_MAX_TURN_CHARS], answer=turn.answer[:_MAX_TURN_CHARS]) for turn in history]
    fenced = [question, *(turn.question for turn in turns), *(turn.answer for turn in turns)]
    try:
        values = {"question": question, "history": turns}
        messages = prompt.messages(values, fenced=fenced, seed=turns[0].question)
        stream = model.stream(messages, max_tokens=_MAX_TOKENS)
        try:
            return RewrittenQuery(question=_question(model, stream))
        finally:
            stream.close()
    except Exception as error:  # noqa: BLE001 — a failing model must not fail the search
        logger.warning("a question was not rewritten: %s", error, extra={"action": "rewriting_failed"})
        warning = f"searched without the conversation: {reader_message(error)}"
        return RewrittenQuery(question=question, warnings=(warning,))


def _question(model: LanguageModel, stream: Iterable[str]) -> str:
    output = "".join(sanitize(stream, evidence="", link_hosts=()))
    lines = (" ".join(line.translate(_MARKS).split()) for line in output.splitlines())
    question = next((line[:_MAX_QUESTION_CHARS] for line in lines if any(char.isalnum() for char in line)), None)
    if question is None:
        raise ModelError(f"language model {model.name!r} returned no question but {one_line(show(output))}")
    return question
