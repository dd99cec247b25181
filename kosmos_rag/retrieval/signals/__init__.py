"""Signals: small rules that move hits after they were ranked, and intents that say which of them apply to a question.

Each file in `kinds/` is one signal. Its name is the file's name, and its class is called `Signal`.
"""
