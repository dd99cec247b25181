"""The signals, one a file."""
