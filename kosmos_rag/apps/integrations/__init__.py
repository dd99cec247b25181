"""Retrievers for `langchain`, `llama_index` and `haystack`; each module needs the extra of its name."""
