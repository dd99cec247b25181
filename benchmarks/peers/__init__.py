"""Compare the library with others on PostgreSQL: same chunks, vectors and questions."""
