"""Analysis, validation and execution of SQL queries."""
