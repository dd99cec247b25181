"""Keyword context for a prompt over a small text: no model, no database, no index on disk.

`KeywordContext` splits a text at blank lines and returns the paragraphs that share words with a query.
"""
