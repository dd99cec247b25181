"""Streams of answers, the turns of a conversation, and the parts and words of a question.

`Tenant.stream_answer` returns the streams. The parts are searched apart.
"""

from kosmos_rag.answering.history import recent_turns
from kosmos_rag.answering.question_parts import split_question
from kosmos_rag.answering.stream import AnswerStream
from kosmos_rag.answering.words import stem, words

__all__ = ["AnswerStream", "recent_turns", "split_question", "stem", "words"]
