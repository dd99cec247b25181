"""OpenAI's interface: stored files, vector stores, answers, embeddings."""
