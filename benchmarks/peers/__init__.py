"""The library and others on PostgreSQL: same chunks, same vectors, same questions, one server, one run."""
