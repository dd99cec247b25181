"""Answers and refusals, measured on questions of others."""
