"""What processes keep in memory of a tenant: vectors, postings and passages."""
