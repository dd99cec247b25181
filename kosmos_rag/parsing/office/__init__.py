"""Word processors and slides: DOCX, PPTX, ODF, RTF and their older forms."""
