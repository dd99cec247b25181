"""The engine, its tenants, and what surrounds every question."""
