"""Streams of answers, and the parts and words of a question.

`Tenant.stream_answer` returns the streams. The parts are searched apart.
"""

from kosmos_rag.answering.question_parts import split_question
from kosmos_rag.answering.stream import AnswerStream
from kosmos_rag.answering.words import stem, words

__all__ = ["AnswerStream", "split_question", "stem", "words"]
