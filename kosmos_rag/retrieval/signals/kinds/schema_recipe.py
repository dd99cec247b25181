"""Recipes that fit the shape of a question."""

import re

from pydantic import Field

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Number, Scoring
from kosmos_rag.retrieval.signals.schema_words import RECIPE, any_said, kind

_PATTERNS = {
    "aggregation": r"\b(?:how many|how often|number of|count|total|sum|average|mean|max\w*|min\w*|most|least)\b",
    "temporal": r"\b(?:when|latest|last|recent|newest|since|before|after|today|yesterday|created|updated|executed)\b",
    "status": r"\b(?:status|state|pending|running|failed|succeeded|cancelled|active|enabled)\b",
    "relationship": r"\b(?:of a|for a|belong\w*|related|variants?|which \w+ (?:has|have|does|do)|join\w*)\b",
}
_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _PATTERNS.items()}


class Signal(Scoring):
    """A bonus for recipes written by hand, and one where the question has the recipe's shape."""

    weight: Number = 1.0
    curated: Number = Field(default=4.0, description="For a recipe written by hand.")
    pattern: Number = Field(default=2.0, description="Where question and recipe are of one shape.")

    def value(self, asked: Asked, passage: Passage) -> float:
        """Return the sum; 0 for what is no recipe, and for one that shares no word with the question."""
        if kind(passage) != RECIPE or not any_said(asked, passage):
            return 0.0
        pattern = _COMPILED.get(str(passage.metadata.get("pattern")))
        fits = pattern is not None and pattern.search(asked.text) is not None
        return (self.curated if passage.metadata.get("curated") else 0.0) + (self.pattern if fits else 0.0)
