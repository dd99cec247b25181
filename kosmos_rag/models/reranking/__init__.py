"""Reranking models: cross-encoders on this machine, and servers."""
