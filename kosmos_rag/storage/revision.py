"""The schema's name and newest revision, in a file of their own: reading them must not import SQLAlchemy."""

SCHEMA = "kosmos"
REVISION = "0001"
"""The newest revision in migrations/: what the code expects to find. A test keeps the two equal."""

BREAKING: tuple[str, ...] = ()
"""Revisions that change or drop what older code uses: it cannot serve from them. The others only add."""
