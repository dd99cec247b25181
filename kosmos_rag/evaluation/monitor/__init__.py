"""Monitoring of live retrieval: recall of the vector index, known answers, isolation of tenants; and repairs."""
