"""Stop words of questions, for wings."""

from kosmos_rag.answering.words import find_stop_words

__all__ = ["find_stop_words"]
