"""Passages that show SQL."""

import re

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Scoring

_SQL = re.compile(r"^\s*(?:```|~~~)\s*sql\b|\bselect\b(?=[\s\S]{1,500}?\bfrom\b)", re.IGNORECASE | re.MULTILINE)


class Signal(Scoring):
    """A fenced block of SQL, or a `select … from`."""

    def value(self, asked: Asked, passage: Passage) -> float:  # noqa: ARG002
        """Return 1 where there is some."""
        return 1.0 if _SQL.search(passage.text) else 0.0
