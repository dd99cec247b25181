"""Context in, an answer made of its own sentences out, or a refusal; and the check of any answer's citations."""
