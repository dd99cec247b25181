"""Authentication: API keys, JSON Web Tokens, and the identity of a caller."""
