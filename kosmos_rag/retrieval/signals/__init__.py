"""Signals: rules that reorder ranked passages, and intents that select them."""
