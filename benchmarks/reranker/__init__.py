"""Measure the cost of reranking and the quality of a trained reranker."""
