"""A question in, ranked passages with their account out."""
