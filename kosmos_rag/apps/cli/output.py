"""Terminal output: control characters in texts of documents and users are replaced."""

import re
from typing import Any

from rich.console import Console
from rich.text import Text

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters except tab and line feed; escape sequences start with one."""


class PlainConsole(Console):
    """A console without markup, emoji names and escape sequences in texts."""

    def __init__(self, *, width: int | None = None) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, soft_wrap=True, width=width)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a text or a table cell, with control characters replaced."""
        return super().render_str(_CONTROL_CHARACTERS.sub("\ufffd", text), **options)
