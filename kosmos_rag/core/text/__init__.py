"""Words, sentences and BM25 of plain text."""
