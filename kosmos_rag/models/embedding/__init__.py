"""Text in, vectors out: the embedding model, its tokenizer, and the space that a tenant's vectors live in."""
