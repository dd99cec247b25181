"""Archives of documents, and the exports of programs that are archives."""
