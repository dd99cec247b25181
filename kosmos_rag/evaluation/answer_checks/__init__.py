"""A share of delivered answers: stored, checked again in maintenance, and counted by collection.

`AnswerChecks` of `kosmos_rag.evaluation.answer_checks.checks` is the entry.
"""
