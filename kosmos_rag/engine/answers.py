"""Streams of answers, as `Tenant.stream_answer` returns them."""

from kosmos_rag.answering.stream import AnswerStream

__all__ = ["AnswerStream"]
