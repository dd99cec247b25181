"""Document sources: each lists its documents with etags, and loads one of them."""
