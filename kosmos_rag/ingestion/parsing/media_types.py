"""The media types that can be parsed."""

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
HTML = "text/html"
MARKDOWN = "text/markdown"
TEXT = "text/plain"

NAMES = {PDF: "PDF", DOCX: "DOCX", HTML: "HTML", MARKDOWN: "Markdown", TEXT: "text"}
"""What people call them."""
