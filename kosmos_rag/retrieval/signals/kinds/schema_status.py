"""Columns that say in which state a row is, where the question asks for that."""

import re

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Number, Scoring
from kosmos_rag.retrieval.signals.schema_words import COLUMN, kind
from kosmos_rag.retrieval.signals.words import words

_NAME = re.compile(r"(?:^|_)(?:status|state|phase|stage|outcome|lifecycle)$", re.IGNORECASE)
_ASKED = words("status state phase stage outcome lifecycle")


class Signal(Scoring):
    """A bonus for such columns, and more for each of their values that the question says."""

    weight: Number = 1.0
    base: Number = Field(default=4.0, description="Where the question says status, state, or one of the values.")
    values: Number = Field(default=2.0, description="At most, for values: half of it for each.")

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return the bonus; 0 for other columns, and where the question asks for no state."""
        if kind(passage) != COLUMN or not _NAME.search(str(passage.metadata.get("column", ""))):
            return 0.0
        known = {word for value in passage.metadata.get("values", ()) for word in words(str(value))}
        named = len(known & asked.words)
        if not named and not _ASKED & asked.words:
            return 0.0
        return self.base + min(self.values, named * self.values / 2)
