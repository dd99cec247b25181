"""What retrieval costs and finds as tenants grow, compared with its alternatives, in one run."""
