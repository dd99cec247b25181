"""The job queue, in the same database as the results: a job finishes in the transaction that writes its result."""
