"""From bytes to stored chunks: parsing, chunking and the pipeline that joins them."""
