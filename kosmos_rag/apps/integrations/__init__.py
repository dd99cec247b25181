"""The library as a retriever of other libraries: `langchain`, `llama_index`, `haystack`, each an extra and a module."""
