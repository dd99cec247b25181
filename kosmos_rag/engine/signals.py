"""Signals of the ranking: what a wing needs to add some."""

from kosmos_rag.retrieval.signals.base import Number, QueryContext, ScoreSignal, SelectionSignal
from kosmos_rag.retrieval.signals.words import word_prefixes

__all__ = ["Number", "QueryContext", "ScoreSignal", "SelectionSignal", "word_prefixes"]
