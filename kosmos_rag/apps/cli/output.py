"""The terminal: what documents hold and readers write is shown there, and not obeyed."""

import re
from typing import Any

from rich.console import Console
from rich.text import Text

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but tab and line end: the first one of an escape sequence is among them."""


class PlainConsole(Console):
    """A console that takes text for text: no markup, no emoji by name, no escape sequences but its own."""

    def __init__(self, *, width: int | None = None) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, soft_wrap=True, width=width)

    def render_str(self, text: str, **options: Any) -> Text:
        """Turn a text into what is printed; cells of tables come by here too."""
        return super().render_str(_OBEYED.sub("\ufffd", text), **options)
