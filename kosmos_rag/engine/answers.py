"""Streams of answers, and the parts of a question.

`Tenant.stream_answer` returns the streams. The parts are searched apart.
"""

from kosmos_rag.answering.question_parts import split_question
from kosmos_rag.answering.stream import AnswerStream

__all__ = ["AnswerStream", "split_question"]
