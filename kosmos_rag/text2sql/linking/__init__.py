"""Schema grounding: the tables, columns and joins that a question needs.

It reads them from the documents of schemas.
"""
