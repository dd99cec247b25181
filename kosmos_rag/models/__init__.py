"""Embedding models, rerankers and language models."""
