"""Answers from a context, refusals, and the check of an answer's citations."""
