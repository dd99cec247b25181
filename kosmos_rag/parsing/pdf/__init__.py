"""PDF: pages, lines, columns, tables, OCR."""
