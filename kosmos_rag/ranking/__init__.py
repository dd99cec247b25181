"""The order of candidates: fusion of the legs, and reranking under a deadline."""
