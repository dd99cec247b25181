"""Experiments: a share of a tenant's questions is answered by a second configuration, or asked of it in the shadow."""
