"""The described database: tables, columns, joins, and the sources that they are read from."""
