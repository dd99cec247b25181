"""Presets of collections of schemas."""
