"""Intents: kinds of queries, recognised by patterns and words.

The first match counts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kosmos_rag.core.section import Section
from kosmos_rag.retrieval.signals.registry import validate


def _require_regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"it must be regular expressions: {error}") from None
    return pattern


class _Rule(Section):
    patterns: tuple[Annotated[str, AfterValidator(_require_regex)], ...] = Field(
        default=(), description="The question matches any of them."
    )
    words: tuple[str, ...] = Field(default=(), description="The question contains any of them as a whole word.")
    signals: Mapping[str, Mapping[str, Any] | None] = Field(
        default={}, description="As rag.signals, merged over it; null switches one off."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """A kind of query with its changes of `rag.signals`."""

    name: str
    pattern: re.Pattern[str]
    signals: Mapping[str, Any]

    def matches(self, text: str) -> bool:
        """Return whether the query is of this kind, ignoring case."""
        return self.pattern.search(text) is not None


def build_intents(rules: Mapping[str, Any]) -> list[Intent]:
    """Build `rag.intents` in its order. Raises ConfigError on an invalid rule."""
    return [_intent(name, validate(_Rule, rule, f"rag.intents.{name}")) for name, rule in rules.items()]


def _intent(name: str, rule: _Rule) -> Intent:
    # A rule without conditions matches every query, as the last rule may want.
    parts = [*rule.patterns, *(rf"\b{re.escape(word)}\b" for word in rule.words)]
    pattern = "|".join(f"(?:{part})" for part in parts)
    return Intent(name=name, pattern=re.compile(pattern, re.IGNORECASE), signals=rule.signals)
