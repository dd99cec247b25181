"""Small replacements for models, for tests and examples."""
