"""What retrieval costs and finds as tenants grow, beside its alternatives, in one run."""
