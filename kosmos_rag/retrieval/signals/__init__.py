"""Signals: rules that change the order of ranked passages, and intents that select rules by the kind of query."""
