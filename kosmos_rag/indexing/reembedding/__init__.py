"""Migration of a tenant to another embedding model.

The steps are: backfill a second space, measure it, cut over, and roll back if needed.
"""
