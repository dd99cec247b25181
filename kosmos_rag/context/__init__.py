"""Ranked passages in, numbered evidence within a token budget out."""
