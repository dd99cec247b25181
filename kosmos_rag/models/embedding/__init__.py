"""Embedding models, their tokenizers, and the embedding spaces of tenants."""
