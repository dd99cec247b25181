"""A/B experiments with a second configuration.

It answers a share of the queries, or repeats them in the background (shadow mode).
"""
