"""Columns that hold what the question names: a name, a time, a number."""

import re

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Number, Scoring
from kosmos_rag.retrieval.signals.schema_words import COLUMN, any_said, kind

_NAME = re.compile(r"(?:^|_)(?:name|title|label)$", re.IGNORECASE)
_MOMENT = re.compile(r"date|time(?!zone)|(?:^|_)(?:at|on|year)$", re.IGNORECASE)
_NUMBER = re.compile(r"int|num|dec|float|double|real|money", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"]+\"|'[^']{2,}'|(?<!^)(?<![.?!] )\b[A-Z][a-z]+")
_WHEN = re.compile(
    r"\b(?:when|today|yesterday|since|before|after|last|latest|recent|(?:19|20)\d\d|week|month|year)\b", re.IGNORECASE
)
_AMOUNT = re.compile(r"(?<![\w-])\d+(?:\.\d+)?(?![\w-])|\b(?:more|less|fewer|above|below|at least|at most)\b")
_EVENTS = ("created", "updated", "executed", "started", "finished", "completed")


class Signal(Scoring):
    """Bonuses by what the question names and what the column is."""

    weight: Number = 1.0
    names: Number = Field(default=3.0, description="For the name of a row, where the question names one.")
    temporal: Number = Field(default=2.0, description="For times, where it asks for or names one.")
    moment: Number = Field(default=2.0, description="On top, where it says the event: created, updated, executed.")
    numeric: Number = Field(default=1.0, description="For numbers, where it compares.")

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return the sum; 0 for what is no column, and for one of which the question says no word."""
        if kind(passage) != COLUMN or not any_said(asked, passage):
            return 0.0
        column, type_ = str(passage.metadata.get("column", "")), str(passage.metadata.get("type", ""))
        total = self.names if _NAME.search(column) and _QUOTED.search(asked.text) else 0.0
        if _MOMENT.search(type_) or _MOMENT.search(column):
            events = [event for event in _EVENTS if event in column.lower() and event in asked.text.lower()]
            total += self.temporal if events or _WHEN.search(asked.text) else 0.0
            total += self.moment if events else 0.0
        elif _NUMBER.search(type_) and not passage.metadata.get("key") and _AMOUNT.search(asked.text):
            total += self.numeric
        return total
