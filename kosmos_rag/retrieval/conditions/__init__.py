"""Conditions on documents that a question states in words."""
