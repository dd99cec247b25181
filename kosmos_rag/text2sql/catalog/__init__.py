"""The described database: tables, columns, joins, and schema sources."""
