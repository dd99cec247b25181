"""Keyword context for a prompt, from a small text.

It needs no model, no database and no index on disk.

`KeywordContext` splits a text at blank lines and returns the paragraphs that share words with a query.
"""
