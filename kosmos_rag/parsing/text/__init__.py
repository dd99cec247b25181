"""Plain text, Markdown and other markup, code, JSON, notebooks, subtitles."""
