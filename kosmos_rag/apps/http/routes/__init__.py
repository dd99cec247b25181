"""Routes: each calls the library with the caller's identity."""
