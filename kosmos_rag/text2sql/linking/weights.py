"""Weights of the parts of a score in schema linking."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Weights of the parts of a score."""

    words: float = 0.5
    """Share of the question's words, weighted by idf, that match the table or one of its columns."""
    in_columns: float = 0.8
    """Weight of a word that only a column matches, relative to one that the table's name matches."""
    named: float = 0.25
    """Share of the table's name in the question."""
    database: float = 1.0
    """Share of the question's words that any name of the database matches."""
    size: float = 0.1
    """Logarithm of the number of the database's tables, subtracted: of many names some match by chance."""
    meaning: float = 0.5
    """Cosine of the table's document, and that of the best of its columns'."""
    database_meaning: float = 1.0
    """The best of the two together in the database.

    It chooses the database, with `database` and `size`. `words`, `named` and `meaning` rank its tables: the best sum of
    the database is subtracted (`best`)."""
    column_meaning: float = 1.0
    """Cosine of a column's document, in the score of the column."""
    table: float = 0.5
    """Weight of the table's score in the score of a column."""
    chosen: float = 0.5
    """For tables that the question needs, and for their columns."""
    entity: float = 0.5
    """For columns that may hold names or times, if the question has any."""
    value: float = 1.0
    """For columns with a known value that the question contains."""
    label: float = 0.5
    """For the label of a table that the question names, if no column of it is asked for."""
