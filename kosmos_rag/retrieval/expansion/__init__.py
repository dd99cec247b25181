"""What is looked for beside the question's own words: synonyms from a file, and what a language model writes."""
