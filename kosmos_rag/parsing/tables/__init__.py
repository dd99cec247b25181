"""A model of rows and columns, and the formats that are tables."""
