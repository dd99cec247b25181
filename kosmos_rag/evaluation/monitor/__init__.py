"""Monitor live retrieval and repair it.

The monitor measures recall of the vector index, known answers, and isolation of tenants.
"""
