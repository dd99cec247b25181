"""The schema of a database in; documents, join paths, prompts and guarded queries out."""
