"""Synonyms of words, read from files as docs/expansion.md describes them."""

from kosmos_rag.retrieval.expansion.synonyms import Synonyms, read_rules

__all__ = ["Synonyms", "read_rules"]
