"""Query expansion: synonyms from a file, wordings and passages of a model."""
