"""Schema grounding: the tables, columns and joins that a question needs, from the documents of schemas."""
