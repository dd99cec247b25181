"""Migration of a tenant to another embedding model: backfill a second space, measure it, cut over, roll back."""
