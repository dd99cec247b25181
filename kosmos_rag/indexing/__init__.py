"""Indexes: built, tuned by measurement, merged, rebuilt and removed."""
