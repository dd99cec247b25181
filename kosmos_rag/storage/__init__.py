"""PostgreSQL: connections, statements, tables, publishing, the job queue and the audit log."""
