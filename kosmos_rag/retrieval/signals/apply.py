"""The signals of a configuration, applied to the hits of a question."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import Asked, Choosing, Scoring
from kosmos_rag.retrieval.signals.intents import Intent, intents_of
from kosmos_rag.retrieval.signals.registry import merged, signals_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """Passages in the order that signals give them."""

    passages: list[Passage]
    intent: str | None
    """What kind of question it is; None where no rule says."""
    warnings: tuple[str, ...]
    """What the caller should know: how many passages a signal left out."""


class Signals:
    """What `rag.signals` and `rag.intents` say, checked. Raises ConfigError where they say what cannot be."""

    def __init__(self, signals: Mapping[str, Any], intents: Mapping[str, Any]) -> None:
        self._plain = signals_of(signals, "rag.signals")
        self._intents = intents_of(intents)
        self._of_intent = {
            intent.name: signals_of(merged(signals, intent.signals), f"rag.intents.{intent.name}.signals")
            for intent in self._intents
        }

    @property
    def move_hits(self) -> bool:
        """Whether there is any signal, for whatever question."""
        return bool(self._plain) or any(self._of_intent.values())

    def apply(self, asked: Asked, passages: Sequence[Passage], *, ahead: Callable[[Passage], bool]) -> Applied:
        """Return the passages by (score / best score + Σ what is added) · Π what multiplies, then chosen from.

        Those that are `ahead` stay before all others. `signals` of each passage says what each signal changed; without
        any signal for this question, the passages are returned as they came.
        """
        intent = self._recognised(asked.text)
        signals = self._plain if intent is None else self._of_intent[intent.name]
        name = None if intent is None else intent.name
        if not signals or not passages:
            return Applied(passages=list(passages), intent=name, warnings=())
        best = max(passage.score for passage in passages)
        # What is added comes first, so that the order in the settings does not matter.
        scoring = sorted(
            ((key, signal) for key, signal in signals.items() if isinstance(signal, Scoring)),
            key=lambda item: item[1].how == "multiply",
        )
        scored = [(passage, *_scored(asked, passage, best, scoring)) for passage in passages]
        scored.sort(key=lambda entry: (not ahead(entry[0]), -entry[1]))
        ordered = [
            replace(passage, rank=rank, score=score, signals=changes)
            for rank, (passage, score, changes) in enumerate(scored, start=1)
        ]
        notes = []
        for key, signal in signals.items():
            if isinstance(signal, Choosing):
                chosen = _chosen(asked, ordered, key, signal)
                if len(chosen) < len(ordered):
                    notes.append(f"{key} left out {len(ordered) - len(chosen)} of {len(ordered)} passages")
                ordered = chosen
        return Applied(passages=ordered, intent=name, warnings=tuple(notes))

    def _recognised(self, question: str) -> Intent | None:
        return next((intent for intent in self._intents if intent.fits(question)), None)


def _scored(
    asked: Asked, passage: Passage, best: float, scoring: Sequence[tuple[str, Scoring]]
) -> tuple[float, dict[str, float]]:
    """Return a passage's score as a share of the best, moved by the signals in this order, and what each added."""
    score = passage.score / best if best > 0 else 0.0
    changes: dict[str, float] = {}
    for name, signal in scoring:
        change = signal.weight * signal.value(asked, passage)
        if change:
            changes[name] = change if signal.how == "add" else score * change
            score += changes[name]
    return score, changes


def _chosen(asked: Asked, passages: Sequence[Passage], name: str, signal: Choosing) -> list[Passage]:
    """Return what a signal leaves, with what it took from their scores."""
    before = {passage.chunk_id: passage.score for passage in passages}
    changed = []
    for passage in signal.choose(asked, passages):
        change = passage.score - before[passage.chunk_id]
        changed.append(replace(passage, signals={**passage.signals, name: change}) if change else passage)
    return changed
