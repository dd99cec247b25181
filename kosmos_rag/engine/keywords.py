"""Paragraphs of a text file that match a query, without a model and a database."""

from kosmos_rag.retrieval.keyword.context import KeywordContext

__all__ = ["KeywordContext"]
