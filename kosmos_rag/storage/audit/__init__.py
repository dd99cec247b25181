"""The log of retrievals: a result goes in, and out to its reader only then; seals over it show what was changed."""
