"""Measure cost and quality of retrieval by the size of the tenant, with alternatives."""
