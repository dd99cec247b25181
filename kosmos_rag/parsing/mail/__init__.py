"""Mail: EML, MBOX and MSG."""
