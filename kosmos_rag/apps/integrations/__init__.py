"""Stores and retrievers for `langchain`, `llama_index` and `haystack`.

Each module needs the extra of its name.
"""
