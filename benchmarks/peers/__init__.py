"""The library beside other retrieval on PostgreSQL: same chunks, same vectors, same questions, one server, one run."""
