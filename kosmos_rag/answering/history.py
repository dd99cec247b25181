"""Choose what a prompt repeats of earlier turns.

A server of language models need not read the beginning that a prompt has in common with an earlier one. So earlier
turns are repeated unchanged, a passage keeps its number and its place, and what goes, goes for several turns at once.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kosmos_rag.core.types import ContextPassage, Turn

Span = tuple[uuid.UUID, int, int]
"""Version, first character and one after the last, of a passage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierTurn:
    """An earlier turn, with its passages that the reader may read now."""

    question: str
    """The question as it was searched."""
    answer: str
    passages: tuple[ContextPassage, ...]
    cited: frozenset[int]
    """Numbers that the answer cites."""
    tokens: int
    """Of question and answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """What a prompt repeats of a conversation."""

    turns: tuple[EarlierTurn, ...] = ()
    """Oldest first, each with the passages that its message shows."""
    numbers: Mapping[Span, int] = field(default_factory=dict)
    """The number of each passage of the conversation, also of those that are not repeated."""
    last_number: int = 0
    first_question: str | None = None
    """Of the oldest turn, as it was asked: equal for all prompts of the conversation."""

    @property
    def passages(self) -> tuple[ContextPassage, ...]:
        """The passages that the messages show, in their order."""
        return tuple(passage for turn in self.turns for passage in turn.passages)


def passage_span(passage: ContextPassage) -> Span:
    """Return what identifies a passage."""
    return passage.citation.version_id, passage.start, passage.end


def recent_turns(history: Sequence[Turn], limit: int) -> Sequence[Turn]:
    """Return the last turns, up to `limit`.

    The oldest go in groups of half of the limit: between two groups the first turn stays the same.
    """
    excess = len(history) - limit
    step = max(1, limit // 2)
    return history[max(0, -(-excess // step) * step) :]


def repeat_turns(history: Sequence[Turn], turns: Sequence[EarlierTurn], budget: int) -> Conversation:
    """Return what a prompt repeats of the turns, within a budget of tokens.

    At the turn where all passages exceed the budget, those that no answer has cited go. If the rest has more than half
    of it, the oldest turns go too. The prompts of the turns after it begin alike, until the budget is exceeded again.

    Args:
        history: The turns as the caller sent them, oldest first.
        turns: The same with their passages.
        budget: In tokens, of questions, answers and passages.
    """
    first = reduced = 0
    for end in range(1, len(turns) + 1):
        if _count_tokens(_show(turns[first:end], reduced - first)) > budget:
            reduced = end
            while first < end and _count_tokens(_show(turns[first:end], reduced - first)) > budget // 2:
                first += 1
    numbers = {passage_span(passage): passage.citation.index for turn in turns for passage in turn.passages}
    indexes = [index for turn in history for index in turn.passages]
    return Conversation(
        turns=tuple(_show(turns[first:], reduced - first)),
        numbers=numbers,
        last_number=max([0, *indexes, *(number for turn in turns for number in turn.cited)]),
        first_question=history[0].question if history else None,
    )


def _show(turns: Sequence[EarlierTurn], reduced: int) -> list[EarlierTurn]:
    """Return the turns with each passage once.

    The first `reduced` turns have only the passages that one of them cites.
    """
    cited = frozenset[int]().union(*(turn.cited for turn in turns[: max(0, reduced)]))
    numbers: set[int] = set()
    reduced_turns = []
    for number, turn in enumerate(turns):
        passages = [
            passage
            for passage in turn.passages
            if passage.citation.index not in numbers and (number >= reduced or passage.citation.index in cited)
        ]
        numbers.update(passage.citation.index for passage in passages)
        reduced_turns.append(replace(turn, passages=tuple(passages)))
    return reduced_turns


def _count_tokens(turns: Sequence[EarlierTurn]) -> int:
    return sum(turn.tokens + sum(passage.tokens for passage in turn.passages) for turn in turns)
