"""Streams of answers, as `Tenant.stream_answer` returns them, and the parts of a question, which are searched apart."""

from kosmos_rag.answering.question_parts import split_question
from kosmos_rag.answering.stream import AnswerStream

__all__ = ["AnswerStream", "split_question"]
