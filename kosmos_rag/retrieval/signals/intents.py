"""Intents: what kind of question it is, by patterns and words, the first that fits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kosmos_rag.core.config.values import Section
from kosmos_rag.retrieval.signals.registry import checked


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"it must be regular expressions: {error}") from None
    return pattern


class _Rule(Section):
    patterns: tuple[Annotated[str, AfterValidator(_compiles)], ...] = Field(default=(), description="Any of them fits.")
    words: tuple[str, ...] = Field(default=(), description="Any of them stands in the question, as a whole word.")
    signals: Mapping[str, Mapping[str, Any] | None] = Field(
        default={}, description="As rag.signals, laid over it; null switches one off."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """A kind of question."""

    name: str
    pattern: re.Pattern[str]
    signals: Mapping[str, Any]

    def fits(self, question: str) -> bool:
        """Whether the question is of this kind; case counts for nothing."""
        return self.pattern.search(question) is not None


def intents_of(rules: Mapping[str, Any]) -> list[Intent]:
    """Read `rag.intents`: rules by name, in their order. Raises ConfigError on one that is malformed."""
    return [_intent(name, checked(_Rule, rule, f"rag.intents.{name}")) for name, rule in rules.items()]


def _intent(name: str, rule: _Rule) -> Intent:
    # Without any condition it fits every question: the last of the rules may say so.
    parts = [*rule.patterns, *(rf"\b{re.escape(word)}\b" for word in rule.words)]
    whole = "|".join(f"(?:{part})" for part in parts)
    return Intent(name=name, pattern=re.compile(whole, re.IGNORECASE), signals=rule.signals)
