"""Query expansion: synonyms from a file, other wordings and a hypothetical passage by a language model."""
