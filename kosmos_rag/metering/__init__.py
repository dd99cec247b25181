"""What tenants use and what it costs."""
