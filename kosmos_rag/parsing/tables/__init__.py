"""Tables: one model of rows and columns, and the files that are tables."""
