"""The version. Reading it imports nothing."""

__version__ = "0.1.0"
