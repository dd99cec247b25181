"""Context by words alone, for a prompt about a small body of text: no model, no database, no index on disk.

`KeywordContext` takes a text apart at its blank lines, and gives the paragraphs that share words with a query.
"""
