"""Text-to-SQL: schema documents, join paths, prompts and validated queries."""
