"""Apply the signals of a configuration to ranked passages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kosmos_rag.core.config import Settings
from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import QueryContext, ScoreSignal, SelectionSignal
from kosmos_rag.retrieval.signals.intents import Intent, build_intents
from kosmos_rag.retrieval.signals.registry import build_signals, merge_signals


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalResult:
    """Passages reordered by signals."""

    passages: list[Passage]
    intent: str | None
    """Name of the first matching intent; None if none matches."""
    warnings: tuple[str, ...]
    """How many passages each selection signal dropped."""


class Signals:
    """Signals and intents built from settings. Raises ConfigError on invalid settings."""

    def __init__(self, signals: Mapping[str, Any], intents: Mapping[str, Any]) -> None:
        self._default = build_signals(signals, "rag.signals")
        self._intents = build_intents(intents)
        self._by_intent = {
            intent.name: build_signals(merge_signals(signals, intent.signals), f"rag.intents.{intent.name}.signals")
            for intent in self._intents
        }

    @property
    def enabled(self) -> bool:
        """Whether any query has a signal."""
        return bool(self._default) or any(self._by_intent.values())

    def apply(
        self, query: QueryContext, passages: Sequence[Passage], *, ahead: Callable[[Passage], bool]
    ) -> SignalResult:
        """Apply the signals of the query's intent, and reorder the passages.

        The score is (score / best score + Σ added) · Π multiplied; selection signals filter afterwards. `signals` of
        each passage holds the change by each signal. Without signals for this query the passages are returned
        unchanged.

        Args:
            query: The query as signals see it.
            passages: Ranked passages, best first.
            ahead: Passages that stay before all others, whatever their score.
        """
        intent = self._match_intent(query.text)
        signals = self._default if intent is None else self._by_intent[intent.name]
        name = None if intent is None else intent.name
        if not signals or not passages:
            return SignalResult(passages=list(passages), intent=name, warnings=())
        best = max(passage.score for passage in passages)
        # Additions come first, so that the order in the settings does not matter.
        scoring = sorted(
            ((key, signal) for key, signal in signals.items() if isinstance(signal, ScoreSignal)),
            key=lambda item: item[1].how == "multiply",
        )
        scored = [(passage, *_score(query, passage, best, scoring)) for passage in passages]
        scored.sort(key=lambda entry: (not ahead(entry[0]), -entry[1]))
        ranking = [
            replace(passage, rank=rank, score=score, signals=changes)
            for rank, (passage, score, changes) in enumerate(scored, start=1)
        ]
        warnings = []
        for key, signal in signals.items():
            if isinstance(signal, SelectionSignal):
                selection = _select(query, ranking, key, signal)
                if len(selection) < len(ranking):
                    warnings.append(f"{key} left out {len(ranking) - len(selection)} of {len(ranking)} passages")
                ranking = selection
        return SignalResult(passages=ranking, intent=name, warnings=tuple(warnings))

    def _match_intent(self, text: str) -> Intent | None:
        return next((intent for intent in self._intents if intent.matches(text)), None)


def build_signal_rules(settings: Settings) -> Signals:
    """Build the signals and intents of settings. Raises ConfigError on invalid ones."""
    return Signals(settings.rag.signals, settings.rag.intents)


def _score(
    query: QueryContext, passage: Passage, best: float, scoring: Sequence[tuple[str, ScoreSignal]]
) -> tuple[float, dict[str, float]]:
    """Return the relative score after the signals, and each change.

    Relative to the best score, with signals in order.
    """
    score = passage.score / best if best > 0 else 0.0
    changes: dict[str, float] = {}
    for name, signal in scoring:
        change = signal.weight * signal.value(query, passage)
        if change:
            changes[name] = change if signal.how == "add" else score * change
            score += changes[name]
    return score, changes


def _select(query: QueryContext, passages: Sequence[Passage], name: str, signal: SelectionSignal) -> list[Passage]:
    """Apply one selection signal, and record its score changes."""
    before = {passage.chunk_id: passage.score for passage in passages}
    changed = []
    for passage in signal.select(query, passages):
        change = passage.score - before[passage.chunk_id]
        changed.append(replace(passage, signals={**passage.signals, name: change}) if change else passage)
    return changed
