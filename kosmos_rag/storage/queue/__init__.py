"""The job queue, in the same database as the results.

A job finishes in the transaction that writes its result.
"""
