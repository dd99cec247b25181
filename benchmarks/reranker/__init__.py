"""What reranking costs, and what a trained reranker is worth."""
